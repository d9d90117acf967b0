"""The framing of a tunnel's packets: WebSocket frames, or none."""

from __future__ import annotations

from typing import Protocol

from tower.websocket.frames import BINARY, Piece


class Reader(Protocol):
    """Parses the peer's frames: a `tower.websocket.frames.FrameReader`, or `UNFRAMED`."""

    def feed(self, data: memoryview) -> list[Piece]:
        """Return the payload and the control frames in *data*."""


class Writer(Protocol):
    """Makes frames: a `tower.websocket.frames.FrameWriter`, or `UNFRAMED`."""

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Make a frame of ``buffer[start:end]`` in place; return where it begins."""

    def wrap(self, payload: bytes, opcode: int = BINARY) -> bytes:
        """Return a frame."""


class Unframed:
    """SSH directly on a connection, as SSH servers use it; it has no state."""

    __slots__ = ()

    def feed(self, data: memoryview) -> list[Piece]:
        """Return all of *data* as payload."""
        return [(0, len(data))]

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Add no header."""
        return start

    def wrap(self, payload: bytes, opcode: int = BINARY) -> bytes:
        """Return *payload*; there are no control frames."""
        return payload if opcode == BINARY else b""


#: The only instance.
UNFRAMED = Unframed()
