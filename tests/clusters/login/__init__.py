"""Tests of `tower.clusters.login`."""
