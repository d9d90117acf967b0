"""Tests of `tower.store.kubernetes`."""
