"""Tests for `tower.cli.ssh`."""
