"""Tests of `tower.web.gateway.upstream`."""
