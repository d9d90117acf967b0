"""Tests of `tower.controller`."""
