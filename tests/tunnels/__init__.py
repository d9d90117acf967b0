"""Tests of `tower.tunnels`."""
