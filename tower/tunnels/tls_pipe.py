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

from tower.net.buffers import POOL
from tower.net.connection import ConnectionEnded
from tower.net.pipes import NO_RECEIVER, Buffer, Receiver, TunnelOwner
from tower.net.tls.connection import TLSFailed, reason_of
from tower.net.tls.resumption import Resumption
from tower.net.tls.session import PIECE, UNSAID, TLSEnded, TLSSession
from tower.tunnels.registry import TunnelChannel


class TLSPipe:
    """A `tower.web.gateway.channel_pool.Channel` with TLS inside, which `tower.tunnels.tls_handshake` set up.  It starts paused.

    :param pipe: it belongs to us from here on.
    :param session: ours, after the handshake.
    :param resumption: of this server.
    :param offered: what it had for the handshake.
    :param owner: whose it is, beside its pipe's.
    """

    __slots__ = (
        "_closing",
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
        "_reason",
        "_resumption",
        "_session",
        "_shut",
        "_unsaid",
        "receiver",
    )

    def __init__(
        self,
        pipe: TunnelChannel,
        session: TLSSession,
        resumption: Resumption,
        offered: ssl.SSLSession | None,
        *,
        owner: TunnelOwner | None = None,
    ) -> None:
        self.receiver: Receiver = NO_RECEIVER
        self._pipe = pipe
        self._session = session
        self._resumption = resumption
        self._offered = offered
        self._owner = owner
        self._paused = self._held = True  # the second: the pipe, too, by us
        self._delivering = self._full = False
        self._unsaid = 0  # what TLS itself said since the pipe had room
        self._peer_ended = self._end_sent = False
        self._shut = self._closing = False  # nothing more is sent; nothing more is wanted either
        self._gone: Exception | None = None  # why the pipe went, while bytes wait for a paused receiver
        self._reason: Exception | None = None  # why we are gone
        pipe.receiver = self
        pipe.pause()

    @property
    def is_large(self) -> bool:
        """See `tower.web.gateway.channel_pool.Channel.is_large`."""
        return self._pipe.is_large

    @property
    def is_leaving(self) -> bool:
        """See `tower.web.gateway.channel_pool.Channel.is_leaving`."""
        return self._pipe.is_leaving or (self._owner is not None and self._owner.draining)

    # Reading

    def received(self, data: memoryview) -> None:
        """Deliver what *data* holds."""
        if not (self._closing or self._peer_ended):
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
        if (own := self._session.take()) and not self._pipe.send(own):
            self._unsaid += len(own)
            if self._unsaid > UNSAID:
                self._broke(TLSFailed("the peer does not read the answers to its TLS records"))
                return
        self._resumption.learn(self._session.object, self._offered)

    def _end_of_stream(self) -> None:
        self._peer_ended = True
        self.receiver.ended()
        if self._end_sent:
            self._both_done()

    def pause(self) -> None:
        """See `tower.net.pipes.Pipe.pause`."""
        self._paused = True
        if not self._held:
            self._held = True
            self._pipe.pause()

    def resume(self) -> None:
        """See `tower.net.pipes.Pipe.resume`; what waited is delivered from within this call."""
        if self._reason is not None:
            self._tell(self._reason)
        else:
            self._paused = False
            if not self._delivering:
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
        """See `tower.net.pipes.Pipe.send`."""
        if self._shut:
            return False
        if self._transmit(data):
            return True
        self._full = True
        return False

    def _transmit(self, data: Buffer) -> bool:
        """Encrypt and send; return whether there is room for more."""
        size = len(data)
        encrypt, send = self._session.encrypt, self._pipe.send
        try:
            if size <= PIECE:
                return send(encrypt(data))
            roomy = True
            with memoryview(data) as view:
                for start in range(0, size, PIECE):
                    roomy = send(encrypt(view[start : start + PIECE]))
                    if self._reason is not None:
                        return False
            return roomy
        except ssl.SSLError as e:
            self._broke(TLSFailed(reason_of(e)))
            return False

    def drained(self) -> None:
        """The pipe has room again."""
        self._unsaid = 0
        if self._full:
            self._full = False
            if not self._shut:
                self.receiver.drained()

    # Ends

    def finish(self) -> None:
        """See `tower.net.pipes.Pipe.finish`."""
        if not self._shut:
            self._shut = True
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
        """See `tower.net.pipes.Pipe.close`."""
        if self._closing or self._reason is not None:
            return
        self._shut = self._closing = True
        if self._gone is not None:
            self._lost(self._gone)
            return
        self._say_end()
        if self._reason is None:
            self._pipe.close()

    def abort(self) -> None:
        """See `tower.net.pipes.Pipe.abort`."""
        self._lost(ConnectionEnded("aborted on our side"))

    def ended(self) -> None:
        """The pipe's own end: nobody can tell it from a cut unless TLS ended before."""
        if not self._peer_ended:
            self.closed(ConnectionEnded("the connection was cut"))

    def closed(self, reason: Exception) -> None:
        """The pipe is gone; what it brought before is still to be delivered."""
        if self._session.waiting and not (self._peer_ended or self._closing or self._delivering):
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
        self._pipe.receiver = NO_RECEIVER
        if flush:
            self._pipe.close()
        else:
            self._pipe.abort()
        self._tell(reason)

    def _tell(self, reason: Exception) -> None:
        receiver, self.receiver = self.receiver, NO_RECEIVER
        receiver.closed(reason)
