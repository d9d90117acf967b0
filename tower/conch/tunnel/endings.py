"""Kinds of reasons for which a tunnel ends, for metrics: few, and without the peer's words."""

from __future__ import annotations

from typing import Final

from tower.conch.connection.liveness import PeerDead
from tower.conch.transport.limits import Closed, Disconnected
from tower.errors import PeerError

PEER_CLOSED: Final = "peer-closed"
CLOSED: Final = "closed"
TIMEOUT: Final = "timeout"
PROTOCOL_ERROR: Final = "protocol-error"
CONNECTION_LOST: Final = "connection-lost"

#: All of them; the first is the peer's decision, the second ours.
ENDINGS = (PEER_CLOSED, CLOSED, TIMEOUT, PROTOCOL_ERROR, CONNECTION_LOST)

_KINDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (Disconnected, PEER_CLOSED),
    (Closed, CLOSED),
    (PeerDead, TIMEOUT),
    (PeerError, PROTOCOL_ERROR),
)


def ending(reason: BaseException) -> str:
    """Return the kind of *reason*, which ended a tunnel or its handshake."""
    return next((kind for error, kind in _KINDS if isinstance(reason, error)), CONNECTION_LOST)
