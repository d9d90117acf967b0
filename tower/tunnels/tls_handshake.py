"""TLS comes up, as its client, inside a channel that an old agent or a node connected to a server."""

from __future__ import annotations

import ssl
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tower.errors import TunnelLost
from tower.net.connecting import ConnectFailed
from tower.net.connection import ConnectionEnded
from tower.net.pipes import NO_RECEIVER, TunnelOwner
from tower.net.tls.connection import reason_of
from tower.net.tls.resumption import Resumption
from tower.net.tls.session import TLSSession
from tower.tunnels.registry import TunnelChannel
from tower.tunnels.tls_pipe import TLSPipe

#: How long the handshake may take, s.
HANDSHAKE_TIMEOUT = 10.0


class TLSHandshake:
    """The receiver of a `tower.web.gateway.channel_pool.Channel` until TLS is up in it.

    :param pipe: nobody's yet; it belongs to us from here on, and then to the `TLSPipe`.
    :param context: of a client.
    :param server_hostname: what the peer's certificate must be for.
    :param clock: an ``IReactorTime``.
    :param resumption: of this server.
    :param owner: whose the pipe will be, beside its own owner's.
    :ivar secured: fires with the `TLSPipe`, which is paused.  Its errback is `ConnectFailed`, of the kinds
        ``tls``, ``timeout`` or ``unreachable``, or `TunnelLost`.  Cancelling it aborts.
    """

    __slots__ = (
        "_answered",
        "_deadline",
        "_offered",
        "_owner",
        "_pipe",
        "_resumption",
        "_session",
        "secured",
    )

    def __init__(
        self,
        pipe: TunnelChannel,
        context: ssl.SSLContext,
        server_hostname: str,
        clock: Any,
        resumption: Resumption | None = None,
        *,
        timeout: float = HANDSHAKE_TIMEOUT,
        owner: TunnelOwner | None = None,
    ) -> None:
        self._pipe = pipe
        self._owner = owner
        self._resumption = resumption or Resumption()
        self._offered = self._resumption.session
        self._session = TLSSession(
            context, server_side=False, server_hostname=server_hostname, session=self._offered
        )
        self._answered = False
        self.secured: Deferred[TLSPipe] = Deferred(lambda _: self._failed(CancelledError()))
        self._deadline: Any = clock.callLater(timeout, self._too_slow, timeout)
        pipe.receiver = self
        self._shake()
        pipe.resume()

    def _shake(self) -> None:
        session = self._session
        try:
            done = session.handshake()
        except (ssl.SSLError, ValueError) as e:
            if alert := session.take():
                self._pipe.send(alert)
            self._failed(ConnectFailed("tls", reason_of(e)), flush=True)
            return
        if own := session.take():
            self._pipe.send(own)
        if done and self._end():
            if session.object.version() != "TLSv1.3":  # there the ticket comes later
                self._resumption.learn(session.object, self._offered)
            self.secured.callback(
                TLSPipe(self._pipe, session, self._resumption, self._offered, owner=self._owner)
            )

    def _end(self) -> bool:
        """Wait for nothing more; return whether we did until now."""
        deadline, self._deadline = self._deadline, None  # one that is over holds us
        if deadline is None:
            return False
        if deadline.active():
            deadline.cancel()
        return True

    def _too_slow(self, timeout: float) -> None:
        self._failed(ConnectFailed("timeout", f"the TLS handshake took longer than {timeout:g} s"))

    def _failed(self, reason: Exception, *, flush: bool = False) -> None:
        if not self._end():
            return
        self._pipe.receiver = NO_RECEIVER
        if flush:
            self._pipe.close()
        else:
            self._pipe.abort()
        if not self.secured.called:
            self.secured.errback(reason)

    # tower.net.pipes.Receiver

    def received(self, data: memoryview) -> None:
        """Go on."""
        self._answered = True
        self._session.feed(data)
        self._shake()

    def drained(self) -> None:
        """What a handshake sends is little, and is queued."""

    def ended(self) -> None:
        """The pipe's own end: nobody can tell it from a cut."""
        self.closed(ConnectionEnded("the connection was cut"))

    def closed(self, reason: Exception) -> None:
        """Say why there will be no TLS.  Old agents accept a channel, dial, and close it when that failed."""
        if isinstance(reason, TunnelLost):
            self._failed(reason)
        elif self._answered:
            self._failed(ConnectFailed("tls", "the connection was closed during the TLS handshake"))
        else:
            self._failed(
                ConnectFailed("unreachable", "the agent could not connect to it, or was sent away at once")
            )
