"""Opening channels (RFC 4254 section 5.1): requests of the peer, and refusals.  No I/O."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tower.errors import PeerError, StreamRefused
from tower.escaping import PEER_TEXT_LIMIT, reported, shortened

if TYPE_CHECKING:
    from tower.conch.connection.channel import Channel
    from tower.conch.connection.mux import Mux

_NUMBER: Final = Struct(">I")

#: Refusal codes (each begins a refusal's text) and their RFC 4254 numbers; 2 for all others.
CODES: Final = {"not-allowed": 1, "no-such-target": 3, "busy": 4}

#: Codes of `StreamRefused` that a refusal can carry.
KNOWN_CODES: Final = frozenset((*CODES, "refused", "unreachable", "timeout", "name", "tls", "failed"))


class BadMessage(PeerError):
    """A message that RFC 4254 forbids here."""


class Incoming:
    """A channel that the peer wants to open; answer it once, with `accept` or `refuse`."""

    def __init__(self, mux: Mux, remote: int, window: int, longest: int, kind: bytes, data: bytes) -> None:
        self._mux = mux
        self._remote, self._window, self._longest = remote, window, longest
        self.kind, self.data = kind, data
        self._answered = False

    def accept(self) -> Channel:
        """Open the channel; it is paused, so set its receiver and resume it.

        :raise TunnelLost: the tunnel was lost since.
        """
        self._answer()
        return self._mux.confirm(self._remote, self._window, self._longest)

    def refuse(self, code: str, text: str) -> None:
        """Refuse the channel; *code* is one of those of `StreamRefused`."""
        self._answer()
        self._mux.refuse(self._remote, code, text)

    def _answer(self) -> None:
        if self._answered:
            raise RuntimeError("the channel was already accepted or refused")
        self._answered = True


def parse_string(data: memoryview, offset: int) -> tuple[bytes, int]:
    """Return the SSH string at *offset* and the offset after it.

    :raise BadMessage: it exceeds the message.
    """
    if offset + 4 > len(data):
        raise BadMessage("a message ends within a length")
    (size,) = _NUMBER.unpack_from(data, offset)
    end = offset + 4 + size
    if end > len(data):
        raise BadMessage("a message ends within a string")
    return bytes(data[offset + 4 : end]), end


def refused(text: bytes, reason: int = 0) -> StreamRefused:
    """Return the error for a peer's refusal; only known codes are recognised."""
    words = text[: 8 * PEER_TEXT_LIMIT].decode(errors="replace")
    code, colon, rest = words.partition(": ")
    if not (colon and code in KNOWN_CODES):
        code, rest = "failed", words
    return StreamRefused(code, reported("the far end", rest), reason, shortened(rest, PEER_TEXT_LIMIT))
