"""Tests of `tower.kube.crds`."""
