"""Tests of `tower.kube.audit`."""
