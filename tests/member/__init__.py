"""Tests of `tower.member`."""
