"""Tests of `tower.web.access.authentication.login`."""
