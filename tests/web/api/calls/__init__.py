"""Tests of `tower.web.api.calls`."""
