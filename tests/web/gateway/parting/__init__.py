"""Tests of `tower.web.gateway.parting`."""
