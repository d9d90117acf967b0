"""Tests of `tower.net.tls`."""
