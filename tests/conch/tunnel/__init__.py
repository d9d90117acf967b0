"""Tests of `tower.conch.tunnel`."""
