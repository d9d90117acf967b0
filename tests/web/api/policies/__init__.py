"""Tests of `tower.web.api.policies`."""
