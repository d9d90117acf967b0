"""Tests of `tower.net`."""
