"""What one SSH connection may take, and the reasons for which it ends."""

from __future__ import annotations

from attrs import field, frozen

from tower.errors import PeerError
from tower.escaping import reported

#: A key is changed after so many bytes whatever `TransportLimits` say.  The smallest packets count as 8, so this is
#: after 2**30 packets at the latest (RFC 4344 section 3.1).
_REKEY_OCTETS = 8 << 30

#: Key exchanges that the peer may begin: so many at once, then so many a second, and one for each so many
#: bytes that went to and fro under the keys before.  It is no use to change keys more often.
EXCHANGES_AT_ONCE = 100.0
EXCHANGES_A_SECOND = 1.0
EXCHANGE_WORTH = 4096


def _bounded(rekey_bytes: int) -> int:
    return max(EXCHANGE_WORTH, min(rekey_bytes, _REKEY_OCTETS))


@frozen
class TransportLimits:
    """What one connection may take.

    :ivar handshake: time until the peer is authenticated and has said hello, s.
    :ivar tries: failed authentications.
    :ivar early_packet: longest packet before authentication, B (RFC 4253 section 6.1).
    :ivar early_bytes: all that may come before authentication, B.
    :ivar rekey_bytes: bytes in either direction after which the keys are changed.
    :ivar rekey_seconds: time after which they are, s.
    :ivar exchange: time that one key exchange may take, s.
    :ivar held: what may wait for the end of a key exchange, B.
    """

    handshake: float = 10.0
    tries: int = 3
    early_packet: int = 35_000
    early_bytes: int = 256 * 1024
    rekey_bytes: int = field(default=1 << 30, converter=_bounded)
    rekey_seconds: float = 3600.0
    exchange: float = 60.0
    held: int = 1 << 20


#: What a connection may take if nothing else is said.
DEFAULT_LIMITS = TransportLimits()


class HandshakeTimeout(PeerError):
    """The peer was not authenticated in time."""


class Disconnected(PeerError):
    """The peer said why it disconnects (RFC 4253 section 11.1).

    :param text: its words, if any.
    :param who: the peer, for people.
    :ivar code: its reason code.
    """

    def __init__(self, code: int, text: str | bytes, who: str = "the peer") -> None:
        super().__init__(reported(who, text) if text else f"{who} disconnected, with code {code}")
        self.code = code


class NoRoom(Disconnected):
    """The peer has no room for another connection of ours (reason 12): it is no use to try again soon."""


class TooManyTunnels(PeerError):
    """An agent or its cluster has all the tunnels that it may have; the text names the limit and the cure."""


class Closed(PeerError):
    """We closed the connection ourselves."""
