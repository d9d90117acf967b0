"""Tests of `tower.clusters`."""
