"""Tests of `tower.cloud.http`."""
