"""Opening channels (RFC 4254 section 5.1): what a peer asks for, and why it may be refused.  No I/O."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tower.errors import PeerError, StreamRefused
from tower.escaping import LONGEST_SAID, reported, shortened

if TYPE_CHECKING:
    from tower.conch.connection.channel import Channel
    from tower.conch.connection.mux import Mux

_NUMBER = Struct(">I")

#: Our words for a refusal, with which its text begins, and RFC 4254's numbers; 2 for all others.
CODES = {"not-allowed": 1, "no-such-target": 3, "busy": 4}

#: The codes of `StreamRefused` that travel in a refusal.
KNOWN_CODES = frozenset((*CODES, "refused", "unreachable", "timeout", "name", "tls", "failed"))


class BadMessage(PeerError):
    """A message that RFC 4254 does not allow here."""


class Incoming:
    """A channel that the peer wants opened; answer it with `accept` or `refuse`, once.

    :ivar kind: the channel's type.
    :ivar data: what follows in the message, which depends on the type.
    """

    def __init__(self, mux: Mux, remote: int, window: int, longest: int, kind: bytes, data: bytes) -> None:
        self._mux = mux
        self._remote, self._window, self._longest = remote, window, longest
        self.kind, self.data = kind, data
        self._answered = False

    def accept(self) -> Channel:
        """Open the channel; it is paused, so set its receiver and resume it.

        :raise TunnelLost: the tunnel went away in the meantime.
        """
        self._answer()
        return self._mux.confirm(self._remote, self._window, self._longest)

    def refuse(self, code: str, text: str) -> None:
        """Say why not; *code* is one of those of `StreamRefused`."""
        self._answer()
        self._mux.refuse(self._remote, code, text)

    def _answer(self) -> None:
        if self._answered:
            raise RuntimeError("the channel was accepted or refused before")
        self._answered = True


def parse_string(data: memoryview, offset: int) -> tuple[bytes, int]:
    """Return the SSH string at *offset* and the offset behind it.

    :raise BadMessage: it is longer than what is there.
    """
    if offset + 4 > len(data):
        raise BadMessage("a message ends within a length")
    (size,) = _NUMBER.unpack_from(data, offset)
    end = offset + 4 + size
    if end > len(data):
        raise BadMessage("a message ends within a string")
    return bytes(data[offset + 4 : end]), end


def refused(text: bytes, reason: int = 0) -> StreamRefused:
    """Make what the peer said an error; only words that we know are taken for a code."""
    words = text[: 8 * LONGEST_SAID].decode(errors="replace")
    code, colon, rest = words.partition(": ")
    if not (colon and code in KNOWN_CODES):
        code, rest = "failed", words
    return StreamRefused(code, reported("the far end", rest), reason, shortened(rest, LONGEST_SAID))
