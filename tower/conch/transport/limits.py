"""Limits of one SSH connection, and the errors that end it."""

from __future__ import annotations

from attrs import field, frozen

from tower.errors import PeerError
from tower.escaping import reported

#: Keys are changed after so many bytes, even if `TransportLimits` allow more.  The smallest packets count as
#: 8 B, so this is after 2**30 packets at the latest (RFC 4344 section 3.1).
_REKEY_OCTETS = 8 << 30

#: Rate limit of key exchanges that the peer starts: burst, rate per second, and one more for each so many
#: bytes sealed or opened with the keys before.  More frequent changes have no use.
EXCHANGES_AT_ONCE = 100.0
EXCHANGES_A_SECOND = 1.0
EXCHANGE_WORTH = 4096


def _bounded(rekey_bytes: int) -> int:
    return max(EXCHANGE_WORTH, min(rekey_bytes, _REKEY_OCTETS))


@frozen
class TransportLimits:
    """Limits of one connection.

    :ivar handshake: time until the peer is authenticated and has sent its hello, s.
    :ivar tries: failed authentications.
    :ivar early_packet: longest packet before authentication, B (RFC 4253 section 6.1).
    :ivar early_bytes: bytes received before authentication.
    :ivar rekey_bytes: bytes in either direction after which the keys are changed.
    :ivar rekey_seconds: time after which the keys are changed, s.
    :ivar exchange: time of one key exchange, s.
    :ivar held: bytes that wait for the end of a key exchange.
    """

    handshake: float = 10.0
    tries: int = 3
    early_packet: int = 35_000
    early_bytes: int = 256 * 1024
    rekey_bytes: int = field(default=1 << 30, converter=_bounded)
    rekey_seconds: float = 3600.0
    exchange: float = 60.0
    held: int = 1 << 20


#: Default limits.
DEFAULT_LIMITS = TransportLimits()


class HandshakeTimeout(PeerError):
    """The peer was not authenticated in time."""


class Disconnected(PeerError):
    """The peer disconnected and gave a reason (RFC 4253 section 11.1).

    :param text: the peer's text, if any.
    :param who: name of the peer in the message.
    """

    def __init__(self, code: int, text: str | bytes, who: str = "the peer") -> None:
        super().__init__(reported(who, text) if text else f"{who} disconnected, with code {code}")
        self.code = code


class TooManyConnections(Disconnected):
    """The peer accepts no further connection (reason 12): a retry must wait."""


class TooManyTunnels(PeerError):
    """An agent or its cluster has reached its limit of tunnels; the text names the limit and the cure."""


class Closed(PeerError):
    """We closed the connection."""


class TokenBucket:
    """A rate limit of requests that cost us more than the peer.

    :param rate: tokens a second.
    :param now: monotonic time, s.
    """

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst = self._left = burst
        self._rate = rate
        self._at = now

    def take(self, now: float, earned: float = 0.0) -> bool:
        """Take a token; return whether there was one.

        :param earned: tokens added since the last call, in addition to those that time adds.
        """
        self._left = min(self._burst, self._left + (now - self._at) * self._rate + earned) - 1.0
        self._at = now
        return self._left >= 0.0
