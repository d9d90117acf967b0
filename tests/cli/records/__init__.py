"""Tests of `tower.cli.records`."""
