"""Tests of `tower.store`."""
