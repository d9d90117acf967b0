"""Tests of `tower.cli.policies`."""
