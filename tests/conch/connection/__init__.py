"""Tests of `tower.conch.connection`."""
