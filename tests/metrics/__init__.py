"""Tests of `tower.metrics`."""
