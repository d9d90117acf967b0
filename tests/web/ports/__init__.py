"""Tests of `tower.web.ports`."""
