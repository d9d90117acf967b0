"""Tests of `tower.server`."""
