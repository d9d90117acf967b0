"""Tests of `tower.member.manifest`."""
