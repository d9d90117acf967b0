"""Tests of `tower.v2`."""
