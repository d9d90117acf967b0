"""Tests of `tower.web.api`."""
