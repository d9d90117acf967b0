"""SSH straight on a connection, as servers speak it: nothing is put around its packets."""

from __future__ import annotations

from tower.websocket.frames import BINARY, Piece


class Unframed:
    """The `tower.conch.tunnel.interfaces.Reader` and ``Writer`` of a tunnel without frames; it has no state."""

    __slots__ = ()

    def feed(self, data: memoryview) -> list[Piece]:
        """Say that all of it is payload."""
        return [(0, len(data))]

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Add nothing in front."""
        return start

    def wrap(self, payload: bytes, opcode: int = BINARY) -> bytes:
        """Add nothing; there are no control frames."""
        return payload if opcode == BINARY else b""


#: One serves all.
UNFRAMED = Unframed()
