"""Tests of `tower.cloud.aws`."""
