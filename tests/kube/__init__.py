"""Tests of Tower."""
