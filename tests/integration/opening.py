"""Messages of a hostile proxy that opens streams."""

from __future__ import annotations

from twisted.conch.ssh.common import NS

from tests.integration.offences import STREAM
from tests.integration.raw_peer import (
    OPEN,
    number,
)

MIB = 2**20


REQUEST = b"GET /ping HTTP/1.1\r\nImpersonate-User: jane\r\nHost: x\r\n\r\n"


def opening(target: str, window: int = MIB, longest: int = MIB, ours: int = 5) -> bytes:
    """Return the message that opens a stream."""
    return bytes((OPEN,)) + STREAM + number(ours, window, longest) + NS(target.encode())
