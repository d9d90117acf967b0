"""Tests of `tower.controller.leader`."""
