"""Strict parsing of the fields of an SSH message (RFC 4251 section 5).

Conch's `getNS` returns a part of a truncated string; data of an unauthenticated peer
needs a reader that raises an error.
"""

from __future__ import annotations

from tower.errors import PeerError


class Malformed(PeerError):
    """The fields of a message do not fill it exactly, or are of the wrong kind."""


class MessageReader:
    """Reads the fields of a message in order.

    Every method raises `Malformed` if the message is too short.
    """

    __slots__ = ("_message", "_offset")

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._offset = 0

    def _take(self, size: int) -> bytes:
        start, self._offset = self._offset, self._offset + size
        if self._offset > len(self._message):
            raise Malformed("a message is shorter than its fields")
        return self._message[start : self._offset]

    def skip(self, size: int) -> None:
        """Skip *size* bytes."""
        self._take(size)

    def boolean(self) -> bool:
        """Return the next boolean; any value but zero is true."""
        return self._take(1) != b"\0"

    def number(self) -> int:
        """Return the next uint32."""
        return int.from_bytes(self._take(4), "big")

    def string(self) -> bytes:
        """Return the next string.  Most fields are strings, so this makes no further call."""
        message, start = self._message, self._offset + 4
        end = start + int.from_bytes(message[start - 4 : start], "big")
        if start > len(message) or end > len(message):
            raise Malformed("a message is shorter than its fields")
        self._offset = end
        return message[start:end]

    def names(self) -> list[bytes]:
        """Return the next name-list."""
        text = self.string()
        return text.split(b",") if text else []

    def remaining(self) -> bytes:
        """Return the remaining bytes."""
        return self._take(len(self._message) - self._offset)

    def before(self) -> bytes:
        """Return the bytes read so far."""
        return self._message[: self._offset]

    def end(self) -> None:
        """Check that no bytes remain."""
        if self._offset != len(self._message):
            raise Malformed("a message is longer than its fields")
