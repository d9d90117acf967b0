"""Tests of `tower.web.api.fields`."""
