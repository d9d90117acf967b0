"""Tests of `tower.control`."""
