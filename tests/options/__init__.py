"""Tests of `tower.options`."""
