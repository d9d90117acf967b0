"""Tests of `tower.trust`."""
