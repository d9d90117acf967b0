"""The framing of a tunnel's packets: WebSocket frames, or none."""

from __future__ import annotations

from typing import Final, TypeAlias

from tower.websocket.frames import BINARY, FrameReader, FrameWriter, Piece


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
UNFRAMED: Final = Unframed()

#: Parses the peer's frames, and makes ours.
Reader: TypeAlias = FrameReader | Unframed
Writer: TypeAlias = FrameWriter | Unframed
