"""Tests for `tower.cli`."""
