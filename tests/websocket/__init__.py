"""Tests of `tower.websocket`."""
