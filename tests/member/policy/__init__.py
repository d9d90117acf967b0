"""Tests of `tower.member.policy`."""
