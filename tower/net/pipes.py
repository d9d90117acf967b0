"""The contract between whatever carries bytes and whatever wants them.

A `Pipe` is one end of a two-way byte stream: a socket (`tower.net.connection.Connection`) or a channel in
a tunnel (`tower.conch.connection.channel.Channel`).  Its owner gives it a `Receiver`.  Flow control is one rule:
who cannot place bytes pauses the pipe they come from, and a paused channel gives no window credit, so
that the sender at the far end stops.

A sender goes on while `Pipe.send` returns True.  So a pipe that takes nothing any more, because it broke or
was finished, closed or aborted, returns False.  It never calls `Receiver.drained`: `Receiver.closed` is the
end.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview

#: From this size on it is worth to receive bytes where they will be sent from, B.
_LARGE = 16 * 1024


class Receiver(Protocol):
    """Gets what happens on a pipe."""

    def received(self, data: memoryview) -> None:
        """Bytes came.  *data* is valid only during the call: copy what you keep."""

    def ended(self) -> None:
        """The other side will send no more (FIN, SSH EOF); called at most once."""

    def drained(self) -> None:
        """There is room again; called after a `Pipe.send` that returned False, by a pipe that still sends."""

    def closed(self, reason: Exception) -> None:
        """The pipe is gone both ways; called exactly once, and last."""


class NoReceiver:
    """The receiver of a pipe that has none yet, or no more."""

    def received(self, data: memoryview) -> None:
        """Nobody could take them: a pipe starts paused, and is resumed by its receiver."""
        raise AssertionError("bytes were delivered to a pipe without a receiver")

    def ended(self) -> None:
        """Nobody to tell."""

    def drained(self) -> None:
        """Nobody to tell."""

    def closed(self, reason: Exception) -> None:
        """Nobody to tell."""


#: The only one there need be.
NO_RECEIVER = NoReceiver()


class Pipe(Protocol):
    """One end of a two-way byte stream with flow control and half close."""

    receiver: Receiver

    def send(self, data: Buffer) -> bool:
        """Send *data*; what cannot go now is copied.

        A pipe that is broken, finished, closed or aborted drops it and returns False, and `Receiver.drained`
        does not come any more.  `Receiver.closed` does, in time where the pipe broke; but what waits for a
        paused receiver comes before it.

        :return: False when the caller should stop until `Receiver.drained` or `Receiver.closed`.
        """

    def finish(self) -> None:
        """Send the end of our side once everything queued has gone (half close); `send` takes no more."""

    def close(self) -> None:
        """Flush what is queued, then close both ways."""

    def abort(self) -> None:
        """Close both ways now; what is queued is lost.

        `Receiver.closed` may be called from within `abort`, `close` and `finish`, and from within `send` when
        it turns out that the pipe is broken.
        """

    def pause(self) -> None:
        """Deliver no more bytes until `resume`."""

    def resume(self) -> None:
        """Deliver bytes again; may call `Receiver.received` before it returns.

        A receiver that was set after the pipe was gone hears so, which is `Receiver.closed`, because of this.
        """


class Lender(Pipe, Protocol):
    """A pipe that lends the place where bytes to be sent may be put; a channel of a tunnel is one."""

    def lease(self) -> memoryview | None:
        """Return that place, or None, which is what False is from `send`."""

    def commit(self, size: int) -> None:
        """Send the first *size* bytes of it."""


def as_lender(pipe: Pipe) -> Lender | None:
    """Return *pipe* if it is a `Lender`.

    A protocol's ``isinstance`` looks at all its attributes anew, which takes longer than opening a stream.
    """
    return cast(Lender, pipe) if hasattr(pipe, "lease") else None


class Splice:
    """Joins two pipes, bytes and ends both ways; a full side pauses the other.

    Install with `join`, which makes one `Splice` the receiver of each pipe.

    Small pieces are passed on as they are, which takes the fewest calls.  As long as large ones come, they
    are received where the sink wants them, if it is a `Lender`: the source finds ``buffer`` and ``filled``
    here then, and looks for them whenever its receiver is set (`tower.net.connection`).

    :ivar forwarded: bytes passed on so far, in this direction.
    """

    def __init__(self, source: Pipe, sink: Pipe) -> None:
        self._source = source
        self._sink = sink
        self._lender = as_lender(sink)
        self._ended = False
        self.other: Splice | None = None
        self.forwarded = 0

    def received(self, data: memoryview) -> None:
        """Pass bytes on; stop reading when the sink is full."""
        size = len(data)
        self.forwarded += size
        if not self._sink.send(data):
            self._source.pause()
        if size >= _LARGE and self._lender is not None and self.other is not None:
            self.buffer, self.filled = self._lender.lease, self._filled
            self._source.receiver = self

    def _filled(self, count: int) -> None:
        """Send what was received where the sink wanted it."""
        self.forwarded += count
        assert self._lender is not None
        self._lender.commit(count)
        if 0 < count < _LARGE and self.other is not None:
            del self.buffer, self.filled
            self._source.receiver = self

    def ended(self) -> None:
        """Pass the half close on."""
        self._ended = True
        self._sink.finish()

    def drained(self) -> None:
        """Our pipe takes bytes again: read its partner again."""
        self._sink.resume()

    def closed(self, reason: Exception) -> None:
        """Close the partner too, after what it still has to send if the end was a clean one."""
        other, self.other = self.other, None
        self.__dict__.pop("filled", None)  # by which it would hold itself
        if other is None:
            return
        other.other = None
        if self._ended:
            self._sink.close()
        else:
            self._sink.abort()


def join(one: Pipe, two: Pipe) -> None:
    """Copy bytes both ways until both directions have ended or one pipe is gone."""
    there, back = Splice(one, two), Splice(two, one)
    there.other, back.other = back, there
    one.receiver, two.receiver = there, back
    one.resume()
    two.resume()


class TunnelOwner(Protocol):
    """What a mux needs of what it belongs to.

    :ivar draining: whether it will soon be gone.
    """

    draining: bool
