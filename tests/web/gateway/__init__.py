"""Tests of `tower.web.gateway`."""
