"""Tests of `tower.clusters.policies`."""
