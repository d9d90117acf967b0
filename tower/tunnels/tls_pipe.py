"""TLS, as client, inside a channel that an old agent or a node connected to an API server.

All received records are decrypted into a buffer of the process and delivered in one call.  If the receiver
pauses, undelivered ciphertext stays here, at most what the channel delivered in one call; the channel is
paused too and gives its sender no window credit.  Sent data is encrypted and passed to the channel, which
queues the rest.

The half close is TLS's ``close_notify``.  The channel's own EOF is never sent, as old agents close both
directions on it.  A received EOF without a preceding ``close_notify`` is a cut connection.
"""

from __future__ import annotations

import ssl

from tower.net.buffers import POOL
from tower.net.connection import ConnectionEnded
from tower.net.pipes import NO_RECEIVER, Buffer, Receiver, TunnelOwner
from tower.net.tls.connection import TLSFailed, reason_of
from tower.net.tls.resumption import Resumption
from tower.net.tls.session import PIECE, UNSAID, TLSEnded, TLSSession
from tower.tunnels.live import TunnelChannel


class TLSPipe:
    """A `TunnelChannel` with TLS inside another one, after the handshake; starts paused.

    :param pipe: owned by this object.
    :param session: after the handshake.
    :param offered: the session that the handshake offered for resumption.
    :param owner: an owner in addition to that of *pipe*.
    """

    __slots__ = (
        "_closing",
        "_delivering",
        "_end_sent",
        "_full",
        "_offered",
        "_own_bytes",
        "_owner",
        "_paused",
        "_peer_ended",
        "_pipe",
        "_pipe_paused",
        "_pipe_reason",
        "_reason",
        "_resumption",
        "_session",
        "_shut",
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
        self._paused = self._pipe_paused = True
        self._delivering = self._full = False
        self._own_bytes = 0  # sent by TLS itself since the pipe had room
        self._peer_ended = self._end_sent = False
        self._shut = self._closing = False  # shut: sends no more data; closing: receives none either
        self._pipe_reason: Exception | None = (
            None  # why the pipe closed, while data waits for a paused receiver
        )
        self._reason: Exception | None = None  # why this pipe closed
        pipe.receiver = self
        pipe.pause()

    @property
    def is_large(self) -> bool:
        """See `TunnelChannel.is_large`."""
        return self._pipe.is_large

    @property
    def is_leaving(self) -> bool:
        """See `TunnelChannel.is_leaving`."""
        return self._pipe.is_leaving or (self._owner is not None and self._owner.draining)

    # Reading

    def received(self, data: memoryview) -> None:
        """Decrypt and deliver *data*."""
        if not (self._closing or self._peer_ended):
            self._deliver(data)
            if self._pipe_paused and not self._paused:
                self._go_on()

    def _deliver(self, data: memoryview | None = None) -> None:
        """Deliver the waiting records and *data*, decrypted."""
        session = self._session
        buffer = POOL.take()
        self._delivering = True
        try:
            while True:
                try:
                    count = session.decrypt(data, buffer)
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
        """Handle messages of TLS itself: a ticket, a key update."""
        if (own := self._session.take()) and not self._pipe.send(own):
            self._own_bytes += len(own)
            if self._own_bytes > UNSAID:
                self._broke(TLSFailed("the peer requests TLS messages but does not read them"))
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
        if not self._pipe_paused:
            self._pipe_paused = True
            self._pipe.pause()

    def resume(self) -> None:
        """See `tower.net.pipes.Pipe.resume`; waiting data is delivered from within this call."""
        if self._reason is not None:
            self._notify_closed(self._reason)
        else:
            self._paused = False
            if not self._delivering:
                self._go_on()

    def _go_on(self) -> None:
        """Deliver the waiting records, then resume the pipe."""
        if self._session.waiting and not (self._peer_ended or self._closing):
            self._deliver()
        if self._paused or self._reason is not None:
            return
        if self._pipe_reason is not None:
            self._lost(self._pipe_reason)
        elif self._pipe_paused:
            self._pipe_paused = False
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
        self._own_bytes = 0
        if self._full:
            self._full = False
            if not self._shut:
                self.receiver.drained()

    # Ends

    def finish(self) -> None:
        """See `tower.net.pipes.Pipe.finish`."""
        if not self._shut:
            self._shut = True
            self._send_end()

    def _send_end(self) -> None:
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
        if self._pipe_reason is not None:
            self._lost(self._pipe_reason)
            return
        self._send_end()
        if self._reason is None:
            self._pipe.close()

    def abort(self) -> None:
        """See `tower.net.pipes.Pipe.abort`."""
        self._lost(ConnectionEnded("aborted on our side"))

    def ended(self) -> None:
        """Treat the channel's EOF as a cut connection, unless TLS ended before."""
        if not self._peer_ended:
            self.closed(ConnectionEnded("the connection was cut"))

    def closed(self, reason: Exception) -> None:
        """The pipe closed; data received before is delivered first."""
        if self._session.waiting and not (self._peer_ended or self._closing or self._delivering):
            self._pipe_reason = reason
        else:
            self._lost(reason)

    def _broke(self, error: Exception) -> None:
        """Close because of a TLS error; send the peer the alert."""
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
        self._notify_closed(reason)

    def _notify_closed(self, reason: Exception) -> None:
        receiver, self.receiver = self.receiver, NO_RECEIVER
        receiver.closed(reason)
