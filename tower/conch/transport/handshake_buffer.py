"""Unparsed bytes of a handshake: the version line (RFC 4253 section 4.2), then packets.  No I/O."""

from __future__ import annotations

import re

from tower import __version__
from tower.conch.transport.ciphers import Opener
from tower.errors import PeerError

#: Our version line, without its end.
OURS = b"SSH-2.0-Tower_" + __version__.encode()

#: The version lines that are accepted.
SSH_2 = re.compile(rb"SSH-(?:2\.0|1\.99)-[!-~][ -~]*")

#: The longest version line with its CRLF, and the most bytes of a server up to its end, B.
_LONGEST = 255
_LONGEST_PREFACE = 4096


def take_version(
    unparsed: bytearray, received: int, *, from_server: bool, wanted: re.Pattern[bytes] = SSH_2
) -> bytes | None:
    """Remove the peer's version line from the front of *unparsed* and return it; None: it is incomplete.

    :param received: bytes that the peer sent so far.
    :param from_server: a server may send other lines first; they are removed too.
    :raise PeerError: there is no version line, or it has an unsupported version.
    """
    while (end := unparsed.find(b"\n")) >= 0:
        line = bytes(unparsed[:end]).removesuffix(b"\r")
        if line.startswith(b"SSH-"):
            if end >= _LONGEST or not wanted.fullmatch(line):
                raise PeerError("an unsupported SSH version")
            del unparsed[: end + 1]
            return line
        if not from_server:
            raise PeerError("no SSH version line")
        del unparsed[: end + 1]
    if len(unparsed) > (_LONGEST_PREFACE if from_server else _LONGEST) or received > _LONGEST_PREFACE:
        raise PeerError("no SSH version line")
    return None


class HandshakeBuffer:
    """Bytes of a peer, in pieces of any size, until the tunnel takes over the parsing.

    :ivar total: bytes received so far.
    """

    __slots__ = ("_awaited", "_bytes", "total")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._awaited = 0  # length of the packet at the front, once it is known
        self.total = 0

    def add(self, data: bytes) -> None:
        """Append received bytes."""
        self._bytes += data
        self.total += len(data)

    def beginning(self, most: int) -> bytes:
        """Return a copy of the first bytes, *most* at most."""
        return bytes(self._bytes[:most])

    def version(self, wanted: re.Pattern[bytes], *, from_server: bool) -> bytes | None:
        """Remove and return the version line, or None while it is incomplete; see `take_version`.

        :raise PeerError: there is no version line, or it has an unsupported version.
        """
        return take_version(self._bytes, self.total, from_server=from_server, wanted=wanted)

    def packet(self, opener: Opener) -> bytes | None:
        """Remove the next packet and return its payload, or None while it is incomplete.

        :raise PeerError: it is invalid, too long, or not authentic.
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

    def remaining(self) -> bytes:
        """Remove and return all remaining bytes."""
        remaining, self._bytes, self._awaited = bytes(self._bytes), bytearray(), 0
        return remaining
