"""Tests of `tower.cloud.config`."""
