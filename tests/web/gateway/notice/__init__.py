"""Tests of `tower.web.gateway.notice`."""
