"""Tests of `tower.http`."""
