"""Tests of `tower.cli.login`."""
