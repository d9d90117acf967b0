"""Tests of `tower.web.access`."""
