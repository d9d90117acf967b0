"""Tests of `tower.kube.rest`."""
