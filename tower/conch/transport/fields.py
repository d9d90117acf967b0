"""Reading the fields of an SSH message (RFC 4251 section 5), strictly.

Conch's `getNS` answers with what is there when a string is cut short; what comes from a peer that is not
authenticated yet deserves a reader that says so.
"""

from __future__ import annotations

from tower.errors import PeerError


class Malformed(PeerError):
    """A message whose fields do not fill it exactly, or are of the wrong kind."""


class MessageReader:
    """Takes the fields off the front of a message, one after the other.

    Every method raises `Malformed` when the message is too short for what is asked.
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
        """Pass over *size* bytes."""
        self._take(size)

    def boolean(self) -> bool:
        """Return the next boolean; any value but zero is true."""
        return self._take(1) != b"\0"

    def number(self) -> int:
        """Return the next uint32."""
        return int.from_bytes(self._take(4), "big")

    def string(self) -> bytes:
        """Return the next string; most fields are, so this is done in one go."""
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

    def rest(self) -> bytes:
        """Return all that is left."""
        return self._take(len(self._message) - self._offset)

    def before(self) -> bytes:
        """Return what was taken so far, as it came."""
        return self._message[: self._offset]

    def end(self) -> None:
        """Check that nothing is left."""
        if self._offset != len(self._message):
            raise Malformed("a message is longer than its fields")
