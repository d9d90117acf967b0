"""Tests of `tower.web.access.audit`."""
