"""Tests of `tower.nodes`."""
