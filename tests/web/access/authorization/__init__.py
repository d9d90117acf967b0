"""Tests of `tower.web.access.authorization`."""
