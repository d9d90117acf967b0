"""Tests of `tower.web.access.authentication.oidc`."""
