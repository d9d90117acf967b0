"""Tests of `tower.controller.objects`."""
