"""Tests of `tower.clusters.host`."""
