"""Authentication requests of agents that join."""

from __future__ import annotations

from tower.conch.transport.keys import KeyPair
from tower.v2 import enrol


def enrol_request(session: bytes, cluster: str, key: KeyPair, token: str) -> bytes:
    """Return an enrolment as it arrives."""
    return bytes(enrol.enrol_request(session, cluster, key, token))
