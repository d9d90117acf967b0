"""Tests of `tower.cloud.gce`."""
