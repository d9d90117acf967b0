"""Tests of `tower.web.limits`."""
