"""Tests of `tower.cloud.openstack`."""
