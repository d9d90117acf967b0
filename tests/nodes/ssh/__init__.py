"""Tests of `tower.nodes.ssh`."""
