"""Tests of `tower.web.login`."""
