"""What a peer sent and nobody took apart yet: its version line, then packets.  No I/O."""

from __future__ import annotations

import re

from tower.conch.transport.packets import Opener
from tower.conch.transport.versions import take_version


class HandshakeBuffer:
    """Bytes of a peer, cut anywhere, until somebody faster takes them apart.

    :ivar total: all that came, B.
    """

    __slots__ = ("_awaited", "_bytes", "total")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._awaited = 0  # the length of the packet that has begun
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take more."""
        self._bytes += data
        self.total += len(data)

    def beginning(self, most: int) -> bytes:
        """Return a copy of the first bytes that are there, at most so many."""
        return bytes(self._bytes[:most])

    def version(self, wanted: re.Pattern[bytes], *, from_server: bool) -> bytes | None:
        """Take the version line off and return it, or None while there is none; see `take_version`.

        :raise PeerError: there will be none, or none of a version that we speak.
        """
        return take_version(self._bytes, self.total, from_server=from_server, wanted=wanted)

    def packet(self, opener: Opener) -> bytes | None:
        """Take the next packet off and return its payload, or None while it is not all there.

        :raise PeerError: it is none, too long, or not authentic.
        """
        have = len(self._bytes)
        if have < max(4, self._awaited):
            return None
        if not self._awaited:
            self._awaited = opener.wire_length(self._bytes, 0)
            if have < self._awaited:
                return None
        wire = bytes(self._bytes[: self._awaited])
        del self._bytes[: self._awaited]
        self._awaited = 0
        return opener.open(wire)

    def rest(self) -> bytes:
        """Give up all that was not taken off."""
        rest, self._bytes, self._awaited = bytes(self._bytes), bytearray(), 0
        return rest
