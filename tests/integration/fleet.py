"""Arguments of the agents of fleet.tac."""

from __future__ import annotations

from pathlib import Path

from tests.integration.programs import LOOPBACK

FLEET = Path(__file__).resolve().parent / "fleet.tac"


def arguments_for(argv: list[str], port: int, *, tls: bool) -> list[str]:
    """Return the arguments of an agent that dials a loopback port, with TLS or without."""
    kept, words = [], iter(argv)
    for word in words:
        if word == "--ca-hash" and not tls:
            next(words)
        elif word.startswith(("ws:", "wss:")):
            kept.append(f"{'wss' if tls else 'ws'}://{LOOPBACK}:{port}")
        else:
            kept.append(word)
    return kept
