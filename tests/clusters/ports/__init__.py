"""Tests of `tower.clusters.ports`."""
