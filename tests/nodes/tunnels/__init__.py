"""Tests of `tower.nodes.tunnels`."""
