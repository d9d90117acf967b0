"""Tests of `tower.v1`."""
