"""Tests of `tower.control.metrics`."""
