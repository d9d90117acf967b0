"""TLS, as its client, inside a channel that an old agent or a node connected to an API server.

What comes is decrypted straight into a buffer of the process, all records that are there at once, and
delivered as one piece; a receiver that pauses leaves cipher text with us, at most what the channel delivered
in one piece, and the channel, paused too, gives its sender no credit.  What is sent is encrypted and handed
to the channel, which keeps what cannot go.

The half close is TLS's: ``close_notify``.  The channel's own EOF is never sent, since old agents take it for
the end of both directions; without ``close_notify`` before it, it is a cut.
"""

from __future__ import annotations

import ssl
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tower.conch.buffers import POOL
from tower.conch.interfaces import Owner
from tower.conch.opening import TunnelLost
from tower.connecting import ConnectFailed
from tower.connection import ConnectionEnded
from tower.pipes import UNHEARD, Buffer, Receiver
from tower.resumption import Resumption
from tower.tls import PIECE, TLSEnded, TLSSession
from tower.tlsconnection import TLSFailed, reason_of
from tower.web.upstream import Channel

#: How long the handshake may take, s.
HANDSHAKE_TIMEOUT = 10.0


class TLSPipe:
    """A `tower.web.upstream.Channel` with TLS inside.  It starts paused; the handshake goes on by itself.

    What is sent during the handshake goes after it.

    :param pipe: nobody's yet; it belongs to us from here on.
    :param context: of a client.
    :param server_hostname: what the peer's certificate must be for.
    :param clock: an ``IReactorTime``.
    :param resumption: of this server.
    :param owner: whose it is, beside its pipe's.
    :ivar secured: fires with ourselves when the handshake is over.  Its errback is `ConnectFailed`, of the
        kinds ``tls``, ``timeout`` or ``unreachable``, or `TunnelLost`.  Cancelling it aborts.
    """

    __slots__ = (
        "_answered",
        "_closing",
        "_deadline",
        "_delivering",
        "_end_sent",
        "_full",
        "_gone",
        "_held",
        "_offered",
        "_owner",
        "_paused",
        "_peer_ended",
        "_pipe",
        "_queue",
        "_ready",
        "_reason",
        "_resumption",
        "_session",
        "_shut",
        "receiver",
        "secured",
    )

    def __init__(
        self,
        pipe: Channel,
        context: ssl.SSLContext,
        server_hostname: str,
        clock: Any,
        resumption: Resumption | None = None,
        *,
        timeout: float = HANDSHAKE_TIMEOUT,
        owner: Owner | None = None,
    ) -> None:
        self.receiver: Receiver = UNHEARD
        self._pipe = pipe
        self._owner = owner
        self._resumption = resumption or Resumption()
        self._offered = self._resumption.session
        self._session = TLSSession(
            context,
            server_side=False,
            server_hostname=server_hostname,
            session=self._offered,
        )
        self._queue: list[bytes] = []  # sent during the handshake
        self._ready = self._answered = False
        self._paused = True
        self._held = False  # the pipe is paused, by us
        self._delivering = self._full = False
        self._peer_ended = self._end_sent = False
        self._shut = self._closing = False  # nothing more is sent; nothing more is wanted either
        self._gone: Exception | None = None  # why the pipe went, while bytes wait for a paused receiver
        self._reason: Exception | None = None  # why we are gone
        self.secured: Deferred[TLSPipe] = Deferred(lambda _: self._lost(CancelledError()))
        self._deadline: Any = clock.callLater(timeout, self._too_slow, timeout)
        pipe.receiver = self
        self._shake()
        pipe.resume()

    @property
    def is_large(self) -> bool:
        """See `tower.web.upstream.Channel.is_large`."""
        return self._pipe.is_large

    @property
    def is_leaving(self) -> bool:
        """See `tower.web.upstream.Channel.is_leaving`."""
        return self._pipe.is_leaving or (self._owner is not None and self._owner.draining)

    # The handshake

    def _shake(self) -> None:
        session = self._session
        try:
            done = session.handshake()
        except (ssl.SSLError, ValueError) as e:
            self._broke(ConnectFailed("tls", reason_of(e)))
            return
        if own := session.take():
            self._pipe.send(own)
        if done and self._reason is None:
            self._is_secure()

    def _is_secure(self) -> None:
        self._ready = True
        self._deadline.cancel()
        if self._session.object.version() != "TLSv1.3":  # there the ticket comes later
            self._resumption.learn(self._session.object, self._offered)
        if self._paused:
            self._held = True
            self._pipe.pause()
        queue, self._queue = self._queue, []
        if queue:
            self._full = not self._transmit(b"".join(queue))
        if self._reason is None:
            if self._closing:
                self._close()
            elif self._shut:
                self._say_end()
        self.secured.callback(self)
        if queue and not (self._full or self._shut or self._reason):
            self.receiver.drained()
        if self._session.waiting and not self._held:
            self._go_on()

    def _too_slow(self, timeout: float) -> None:
        self._lost(ConnectFailed("timeout", f"the TLS handshake took longer than {timeout:g} s"))

    def _handshake_ended(self, reason: Exception) -> None:
        """Say why there will be no TLS.  Old agents accept a channel, dial, and close it when that failed."""
        if isinstance(reason, TunnelLost):
            self._lost(reason)
        elif self._answered:
            self._lost(ConnectFailed("tls", "the connection was closed during the TLS handshake"))
        else:
            self._lost(
                ConnectFailed("unreachable", "the agent could not connect to it, or was sent away at once")
            )

    # Reading

    def received(self, data: memoryview) -> None:
        """Deliver what *data* holds."""
        if not self._ready:
            self._answered = True
            self._session.feed(data)
            self._shake()
            self._session.keep()
        elif not (self._closing or self._peer_ended):
            self._deliver(data)
            if self._held and not self._paused:
                self._go_on()

    def _deliver(self, data: memoryview | None = None) -> None:
        """Deliver what waits and, if there is more to wait for now, *data*."""
        session = self._session
        buffer = POOL.take()
        self._delivering = True
        try:
            while True:
                try:
                    count = session.read_into(buffer) if data is None else session.decrypt(data, buffer)
                except TLSEnded:
                    self._end_of_stream()
                    return
                except ssl.SSLError as e:
                    self._broke(TLSFailed(reason_of(e)))
                    return
                if not count:
                    self._nothing_read()
                    return
                data = None
                self.receiver.received(buffer[:count])
                if not session.more or self._paused or self._closing or self._reason is not None:
                    break
        finally:
            self._delivering = False
            POOL.give_back(buffer)
        if session.more:
            session.keep()

    def _nothing_read(self) -> None:
        """See to what TLS says to us alone: a ticket, a new key."""
        if own := self._session.take():
            self._pipe.send(own)
        self._resumption.learn(self._session.object, self._offered)

    def _end_of_stream(self) -> None:
        self._peer_ended = True
        self.receiver.ended()
        if self._end_sent:
            self._both_done()

    def pause(self) -> None:
        """See `tower.pipes.Pipe.pause`."""
        self._paused = True
        if self._ready and not self._held:
            self._held = True
            self._pipe.pause()

    def resume(self) -> None:
        """See `tower.pipes.Pipe.resume`; what waited is delivered from within this call."""
        if self._reason is not None:
            self._tell(self._reason)
        else:
            self._paused = False
            if self._ready and not self._delivering:
                self._go_on()

    def _go_on(self) -> None:
        """Deliver what waits here, then let more come."""
        if self._session.waiting and not (self._peer_ended or self._closing):
            self._deliver()
        if self._paused or self._reason is not None:
            return
        if self._gone is not None:
            self._lost(self._gone)
        elif self._held:
            self._held = False
            self._pipe.resume()

    # Sending

    def send(self, data: Buffer) -> bool:
        """See `tower.pipes.Pipe.send`; after `finish` or `close` *data* is dropped."""
        if self._shut:
            return True
        if not self._ready:
            self._queue.append(bytes(data))
        elif self._transmit(data):
            return True
        self._full = True
        return False

    def _transmit(self, data: Buffer) -> bool:
        """Encrypt and send; return whether there is room for more, or nobody to send to."""
        size = len(data)
        encrypt, send = self._session.encrypt, self._pipe.send
        try:
            if size <= PIECE:
                return send(encrypt(data)) or self._reason is not None
            roomy = True
            with memoryview(data) as view:
                for start in range(0, size, PIECE):
                    roomy = send(encrypt(view[start : start + PIECE]))
                    if self._reason is not None:
                        return True
            return roomy
        except ssl.SSLError as e:
            self._broke(TLSFailed(reason_of(e)))
            return True

    def drained(self) -> None:
        """The pipe has room again."""
        if self._full and self._ready:
            self._full = False
            if not self._shut:
                self.receiver.drained()

    # Ends

    def finish(self) -> None:
        """See `tower.pipes.Pipe.finish`."""
        if not self._shut:
            self._shut = True
            if self._ready:
                self._say_end()

    def _say_end(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self._pipe.send(self._session.end())
        if self._peer_ended and self._reason is None:
            self._both_done()

    def _both_done(self) -> None:
        self._lost(ConnectionEnded("both sides are done"), flush=True)

    def close(self) -> None:
        """See `tower.pipes.Pipe.close`; during the handshake there may be nothing that is worth its end."""
        if self._closing or self._reason is not None:
            return
        self._shut = self._closing = True
        if self._gone is not None:
            self._lost(self._gone)
        elif self._ready:
            self._close()
        elif not self._queue:
            self._lost(ConnectionEnded("closed on our side"))

    def _close(self) -> None:
        self._say_end()
        if self._reason is None:
            self._pipe.close()

    def abort(self) -> None:
        """See `tower.pipes.Pipe.abort`."""
        self._lost(ConnectionEnded("aborted on our side"))

    def ended(self) -> None:
        """The pipe's own end: nobody can tell it from a cut unless TLS ended before."""
        if not self._peer_ended:
            self.closed(ConnectionEnded("the connection was cut"))

    def closed(self, reason: Exception) -> None:
        """The pipe is gone; what it brought before is still to be delivered."""
        if not self._ready:
            self._handshake_ended(reason)
        elif self._session.waiting and not (self._peer_ended or self._closing or self._delivering):
            self._gone = reason
        else:
            self._lost(reason)

    def _broke(self, error: Exception) -> None:
        """Give up on TLS, telling the peer."""
        if alert := self._session.take():
            self._pipe.send(alert)
        self._lost(error, flush=True)

    def _lost(self, reason: Exception, *, flush: bool = False) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        self._shut = True
        self._queue.clear()
        self._pipe.receiver = UNHEARD
        if flush:
            self._pipe.close()
        else:
            self._pipe.abort()
        if not self._ready:
            deadline, self._deadline = self._deadline, None  # one that is over holds us
            if deadline.active():
                deadline.cancel()
            if not self.secured.called:
                self.secured.errback(reason)
        self._tell(reason)

    def _tell(self, reason: Exception) -> None:
        receiver, self.receiver = self.receiver, UNHEARD
        receiver.closed(reason)
