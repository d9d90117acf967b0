"""Tests of `tower.conch.transport`."""
