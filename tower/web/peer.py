"""The client's end of a connection."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tower.kube.canonical_head import forwarding_lines
from tower.net.pipes import AcceptedPipe
from tower.net.tls.peer_chain import peer_chain

if TYPE_CHECKING:
    from tower.web.gateway.user_session import UserConnection


class Peer:
    """The client's end of a connection; each property is read once, on first use.

    It lives as long as the connection, and can be weakly referenced, unlike objects of compiled classes.

    :ivar channel: receives the client's requests; None: the connection has ended.
    """

    def __init__(self, connection: AcceptedPipe, channel: UserConnection | None = None) -> None:
        self._connection = connection
        self.channel = channel

    @cached_property
    def certificate(self) -> bytes | None:
        """The client certificate that TLS verified, DER, or None."""
        return self._connection.peer_certificate()

    def chain(self) -> tuple[bytes, ...]:
        """Return the certificates that the client sent, its own first, DER; a resumed session has none."""
        session = self._connection.tls
        return () if session is None else peer_chain(session)

    @cached_property
    def address(self) -> str:
        """The client's IP address."""
        return self._connection.getPeer().host

    @cached_property
    def forwarding(self) -> bytes:
        """The header lines that name the client to a cluster."""
        return forwarding_lines(self.address)

    def abort(self, reason: str, code: int) -> None:
        """End the connection, if it has not ended; see `UserConnection.abort`."""
        if self.channel is not None:
            self.channel.abort(reason, code)
