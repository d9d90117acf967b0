"""Tests of `tower.logs`."""
