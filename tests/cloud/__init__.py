"""Tests of `tower.cloud`."""
