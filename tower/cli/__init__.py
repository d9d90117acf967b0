"""The `tower` command for people: a client of the proxy's own API."""

from __future__ import annotations

from tower.cli.command import main

__all__ = ["main"]
