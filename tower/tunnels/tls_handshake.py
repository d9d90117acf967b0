"""The TLS handshake, as client, inside a channel that an old agent or a node connected to a server."""

from __future__ import annotations

import ssl

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall

from tower.errors import TunnelLost
from tower.net.connecting import ConnectFailed
from tower.net.connection import ConnectionEnded
from tower.net.pipes import NO_RECEIVER, TunnelOwner
from tower.net.tls.connection import reason_of
from tower.net.tls.resumption import Resumption
from tower.net.tls.session import TLSSession
from tower.reactor.timers import Clock
from tower.tunnels.live import TunnelChannel
from tower.tunnels.tls_pipe import TLSPipe

#: Timeout of the handshake, s.
HANDSHAKE_TIMEOUT = 10.0


class TLSHandshake:
    """The receiver of a `TunnelChannel` during the TLS handshake.

    :param pipe: without a receiver; owned by this object, then by the `TLSPipe`.
    :param server_hostname: required name in the server's certificate.
    :param owner: second owner of the `TLSPipe`, in addition to that of the channel.
    :ivar secured: fires with the paused `TLSPipe`; fails with `ConnectFailed`, of kind ``tls``, ``timeout``
        or ``unreachable``, or with `TunnelLost`.  Cancelling it aborts.
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
        clock: Clock,
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
        self._deadline: IDelayedCall | None = clock.callLater(timeout, self._timed_out, timeout)
        pipe.receiver = self
        self._advance()
        pipe.resume()

    def _advance(self) -> None:
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
            if session.object.version() != "TLSv1.3":  # in TLS 1.3 the ticket comes later
                self._resumption.learn(session.object, self._offered)
            self.secured.callback(
                TLSPipe(self._pipe, session, self._resumption, self._offered, owner=self._owner)
            )

    def _end(self) -> bool:
        """Cancel the timeout; return whether the handshake was in progress."""
        deadline, self._deadline = self._deadline, None  # a call that was made holds a reference to us
        if deadline is None:
            return False
        if deadline.active():
            deadline.cancel()
        return True

    def _timed_out(self, timeout: float) -> None:
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
        """Continue the handshake."""
        self._answered = True
        self._session.feed(data)
        self._advance()

    def drained(self) -> None:
        """No-op: a handshake sends little, which is queued."""

    def ended(self) -> None:
        """Treat the channel's EOF as a cut connection."""
        self.closed(ConnectionEnded("the connection was cut"))

    def closed(self, reason: Exception) -> None:
        """Fail the handshake.  Old agents accept a channel, dial, and close it if dialing failed."""
        if isinstance(reason, TunnelLost):
            self._failed(reason)
        elif self._answered:
            self._failed(ConnectFailed("tls", "the connection was closed during the TLS handshake"))
        else:
            self._failed(
                ConnectFailed("unreachable", "the agent could not connect to it, or was rejected at once")
            )
