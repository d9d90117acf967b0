"""Tests of `tower.web.api.writes`."""
