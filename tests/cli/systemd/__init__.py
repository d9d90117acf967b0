"""Tests of `tower.cli.systemd`."""
