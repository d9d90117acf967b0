"""Tests of `tower.cloud.azure`."""
