"""Interfaces of byte streams: pipes and their receivers.

A `Pipe` is one end of a two-way byte stream: a socket (`tower.net.connection.Connection`) or a channel in a
tunnel (`tower.conch.connection.channel.Channel`).  Its owner sets its `Receiver`.  Flow control has one rule:
a receiver that cannot accept bytes pauses their pipe, and a paused channel grants no window, so that the
sender at the far end stops.

A sender continues while `Pipe.send` returns True.  A pipe that is broken, finished, closed or aborted returns
False and never calls `Receiver.drained`: `Receiver.closed` is its last event.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, cast

from mypy_extensions import mypyc_attr
from twisted.internet.address import IPv4Address, IPv6Address

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Size from which pieces are received directly into the send buffer, B.
_LARGE: Final = 16 * 1024


class Receiver(Protocol):
    """Receiver of a pipe's events."""

    def received(self, data: memoryview) -> None:
        """Handle received bytes; *data* is valid only during the call."""

    def ended(self) -> None:
        """Handle the end of the peer's stream (FIN, SSH EOF); called at most once."""

    def drained(self) -> None:
        """Continue to send; called after a `Pipe.send` that returned False, if the pipe still sends."""

    def closed(self, reason: Exception) -> None:
        """Handle the end of the pipe in both directions; called exactly once, and last."""


@mypyc_attr(allow_interpreted_subclasses=True)
class NoReceiver:
    """Receiver of a pipe without another."""

    def received(self, data: memoryview) -> None:
        """Never called: a pipe starts paused, and its receiver resumes it."""
        raise AssertionError("bytes were delivered to a pipe without a receiver")

    def ended(self) -> None:
        """See `Receiver`."""

    def drained(self) -> None:
        """See `Receiver`."""

    def closed(self, reason: Exception) -> None:
        """See `Receiver`."""


#: The instance for all pipes.
NO_RECEIVER: Final = NoReceiver()


class Pipe(Protocol):
    """One end of a two-way byte stream with flow control and half close."""

    receiver: Receiver

    def send(self, data: Buffer) -> bool:
        """Send *data*; return False if the caller should stop until `Receiver.drained` or `Receiver.closed`.

        Bytes that cannot be sent now are copied.  A pipe that is broken, finished, closed or aborted drops
        *data* and returns False; `Receiver.drained` does not follow, only `Receiver.closed`, after the bytes
        that wait for a paused receiver.
        """

    def finish(self) -> None:
        """Send the end of our stream after the queued bytes (half close); `send` accepts no more."""

    def close(self) -> None:
        """Send the queued bytes, then close both directions."""

    def abort(self) -> None:
        """Close both directions now; queued bytes are lost.

        `Receiver.closed` may be called from within `abort`, `close` and `finish`, and from within `send` if
        the pipe is broken.
        """

    def pause(self) -> None:
        """Deliver no more bytes until `resume`."""

    def resume(self) -> None:
        """Deliver bytes again; may call `Receiver.received` before it returns.

        On a closed pipe, `Receiver.closed` follows for a receiver that was set later.
        """


class AcceptedPipe(Pipe, Protocol):
    """A connection that a port accepted, as `tower.net.connection.Connection`.

    :ivar bytes_in: received so far, B.
    :ivar bytes_out: sent so far, B.
    """

    bytes_in: int
    bytes_out: int

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS session, if any."""

    def peer_certificate(self) -> bytes | None:
        """Return the peer's verified certificate, DER, or None."""

    def getPeer(self) -> IPv4Address | IPv6Address:
        """Return the peer's address; behind a load balancer, the client's."""


class Lender(Pipe, Protocol):
    """A pipe with a send buffer for its caller; a channel of a tunnel is one."""

    def lease(self) -> memoryview | None:
        """Return the buffer, or None in the cases in which `send` returns False."""

    def commit(self, size: int) -> None:
        """Send the first *size* bytes of the buffer."""


def as_lender(pipe: Pipe) -> Lender | None:
    """Return *pipe* if it is a `Lender`.

    ``isinstance`` of a protocol looks up all its attributes, which takes longer than opening a stream.
    """
    return cast(Lender, pipe) if hasattr(pipe, "lease") else None


@mypyc_attr(allow_interpreted_subclasses=True)
class Splice:
    """Forwards one direction between two pipes; a full sink pauses the source.

    `join` makes a `Splice` the receiver of each pipe.

    Small pieces are sent as they are received, which takes the fewest calls.  While large ones come, they are
    received in the sink's buffer, if it is a `Lender`: ``buffer`` and ``filled`` are then set here, and the
    source looks for them when its receiver is set (`tower.net.connection`).
    """

    def __init__(self, source: Pipe, sink: Pipe) -> None:
        self._source = source
        self._sink = sink
        self._lender = as_lender(sink)
        self._ended = False
        self.other: Splice | None = None
        self.forwarded = 0
        self.buffer: Callable[[], memoryview | None] | None = None
        self.filled: Callable[[int], None] | None = None

    def received(self, data: memoryview) -> None:
        """Forward bytes; pause the source if the sink is full."""
        size = len(data)
        self.forwarded += size
        if not self._sink.send(data):
            self._source.pause()
        if size >= _LARGE and self._lender is not None and self.other is not None:
            self.buffer, self.filled = self._lender.lease, self._filled
            self._source.receiver = self

    def _filled(self, count: int) -> None:
        """Send bytes that were received in the sink's buffer."""
        self.forwarded += count
        assert self._lender is not None
        self._lender.commit(count)
        if 0 < count < _LARGE and self.other is not None:
            self.buffer = self.filled = None
            self._source.receiver = self

    def ended(self) -> None:
        """Forward the half close."""
        self._ended = True
        self._sink.finish()

    def drained(self) -> None:
        """Resume the other pipe."""
        self._sink.resume()

    def closed(self, reason: Exception) -> None:
        """Close the other pipe; after a clean end, once its queue is sent."""
        other, self.other = self.other, None
        self.buffer = self.filled = None  # a reference cycle
        if other is None:
            return
        other.other = None
        if self._ended:
            self._sink.close()
        else:
            self._sink.abort()


def join(one: Pipe, two: Pipe) -> None:
    """Forward bytes in both directions until both have ended or one pipe is closed."""
    there, back = Splice(one, two), Splice(two, one)
    there.other, back.other = back, there
    one.receiver, two.receiver = there, back
    one.resume()
    two.resume()


class TunnelOwner(Protocol):
    """Owner of a mux; `draining` means that it will close soon."""

    draining: bool
