"""Tests of `tower.kube.access`."""
