"""Tests of `tower.reactor`."""
