"""Tests for `tower.doctor`."""
