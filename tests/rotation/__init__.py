"""Tests of `tower.rotation`."""
