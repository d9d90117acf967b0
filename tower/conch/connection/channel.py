"""An SSH channel (RFC 4254 section 5) as a pipe: windows, half close, and a bound on everything.

What comes while the channel is paused waits in the channel, and no credit is given for it: that bounds it by
the window and stops the sender at the far end.  What cannot be sent for want of window or because the
tunnel is full waits too, and `Channel.send` says so; a well-behaved sender adds no more until `drained`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.conch.connection.messages import ALWAYS_FITS, LARGEST_WINDOW, data_head
from tower.conch.connection.receive_queue import ReceiveQueue
from tower.conch.connection.window import SHARED, Window
from tower.errors import PeerError, TowerError
from tower.net.pipes import NO_RECEIVER, Buffer, Receiver
from tower.net.send_queue import SendQueue

if TYPE_CHECKING:
    from tower.conch.connection.mux import Mux

#: What was delivered is credited once it is so much; no window that we grant hangs on less, B.
_WORTH_CREDIT = 8 * 1024


class ChannelEnded(TowerError):
    """The channel is closed."""


class BadSequence(PeerError):
    """A message that the peer may not send after what it sent before."""


class Channel:
    """One stream in a tunnel; a `tower.net.pipes.Pipe`.  It starts paused.

    A channel that is closed without `finish` looks to the peer like one that was cut: `Receiver.closed` comes
    without `Receiver.ended` before it.

    :ivar local: our number of it.
    :ivar remote: the number that the peer has for it.
    :ivar head: what a message with data for it begins with.
    :ivar bytes_in: bytes received.
    :ivar bytes_out: bytes sent.
    :ivar is_closed: whether nothing more can be sent.
    """

    __slots__ = (
        "__weakref__",
        "_backlog",
        "_close_sent",
        "_closing",
        "_delivering",
        "_end_reason",
        "_end_sent",
        "_end_told",
        "_finishing",
        "_fits",
        "_inbox",
        "_longest",
        "_mux",
        "_out_window",
        "_paused",
        "_peer_closed",
        "_peer_ended",
        "_sharing",
        "_shut",
        "_uncredited",
        "_wanted",
        "_window",
        "_wire",
        "bytes_in",
        "bytes_out",
        "head",
        "is_waiting",
        "local",
        "receiver",
        "remote",
    )

    def __init__(self, mux: Mux, local: int, window: Window) -> None:
        self._mux = mux
        self._wire = mux.wire
        self._sharing = mux.sharing
        self.local = local
        self.receiver: Receiver = NO_RECEIVER
        self._window = window
        self.remote = self._out_window = self._longest = self._fits = 0
        self.head = b""
        self._backlog: SendQueue | None = None  # like the inbox, there only while something is in it
        self._inbox: ReceiveQueue | None = None
        self._paused = True
        self._delivering = False
        self._wanted = False
        self.is_waiting = False
        self._peer_ended = self._peer_closed = self._end_told = False
        self._finishing = self._end_sent = self._closing = self._close_sent = self._shut = False
        self._end_reason: Exception | None = None
        self._uncredited = 0
        self.bytes_in = self.bytes_out = 0

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` that have not gone yet."""
        return 0 if self._backlog is None else self._backlog.size

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closing or self._close_sent or self._peer_closed

    @property
    def close_sent(self) -> bool:
        """Whether the peer was told that the channel is closed: then it must hear nothing more about it."""
        return self._close_sent

    @property
    def is_large(self) -> bool:
        """Whether either side lent it much of its memory, and cannot take that back while it is open."""
        return max(self._window.size, self._out_window) > SHARED

    @property
    def is_leaving(self) -> bool:
        """Whether the tunnel that it is in will soon be gone."""
        owner = self._mux.owner
        return owner is not None and owner.draining

    def opened(self, remote: int, window: int, longest: int) -> None:
        """Note what the peer granted; called by the mux."""
        self.remote, self._out_window, self._longest = remote, window, longest
        self._fits = min(longest, ALWAYS_FITS)
        self.head = data_head(remote)

    # Sending

    def send(self, data: Buffer) -> bool:
        """See `tower.net.pipes.Pipe.send`."""
        if self._shut:
            return False
        size = len(data)
        if (
            0 < size <= self._fits
            and size <= self._out_window
            and self._backlog is None
            and not self._wire.congested
        ):
            self._out_window -= size
            self.bytes_out += size
            sharing, wire = self._sharing, self._wire  # what `Mux.send_data` would do, in one call less
            if not (sharing.is_mixed or self is sharing.busiest):
                sharing.notice(self, size)
            wire.send(self.head + size.to_bytes(4, "big") + data)
            if not wire.congested:
                return True
            if not self._close_sent:  # else the tunnel was lost under this
                self._wait()
            return False
        return self._send_in_pieces(data, size)

    def _send_in_pieces(self, data: Buffer, size: int) -> bool:
        sent = 0
        if self._backlog is None:
            while sent < size and (piece := self._room(size - sent)):
                self._mux.send_data(self, data[sent : sent + piece] if sent or piece < size else data)
                self._out_window -= piece
                sent += piece
            if self._close_sent:
                return False  # the tunnel was lost under this
        self.bytes_out += size
        if sent < size:
            if self._backlog is None:
                self._backlog = SendQueue()
            self._backlog.add(data[sent:])
        elif self._backlog is None and not self._wire.congested:
            return True
        self._wait()
        return False

    def lease(self) -> memoryview | None:
        """Return where bytes to be sent may be put, or None: then wait for `Receiver.drained`.

        The buffer is the process's: fill it, then call `commit` before anything else happens.  After `finish`
        or `close` there is none, and `Receiver.drained` does not come.
        """
        if self._shut:
            return None
        room = min(self._out_window, self._longest, self._sharing.largest)
        if self._backlog is not None or not room or self._wire.congested:
            self._wait()
            return None
        return self._mux.space[:room]

    def commit(self, size: int) -> None:
        """Send the first *size* bytes of what `lease` returned, if any."""
        if not size:
            return
        self._out_window -= size
        self.bytes_out += size
        self._mux.commit(self, size)

    def _room(self, wanted: int) -> int:
        """Return how many of *wanted* bytes the next packet may have."""
        if self._wire.congested:
            return 0
        return min(wanted, self._out_window, self._longest, self._sharing.largest)

    def _wait(self) -> None:
        """Have `turn` called when the tunnel takes bytes, and `drained` when we do."""
        self._wanted = True
        if self._out_window and not self.is_waiting:
            self.is_waiting = True
            self._mux.wait(self)

    def turn(self) -> bool:
        """Send one packet of what is queued; return whether another turn is wanted.

        Called by the mux with `is_waiting` unset, so that `drained` may lead to another wait.
        """
        backlog = self._backlog
        if backlog is not None:
            first = backlog.first()
            if room := self._room(len(first)):
                self._mux.send_data(self, first[:room])
                if self._close_sent:
                    return False  # the tunnel was lost under this
                self._out_window -= room
                backlog.advance(room)
            if backlog.size:
                return self._out_window > 0
            self._backlog = None
        if self._closing:
            if self._finishing:
                self._send_end()  # what was queued went, so this is no cut
            self._send_close(ChannelEnded("closed on our side"))
        elif self._finishing:
            self._send_end()
        elif self._wanted and self._wire.congested:
            return True
        elif self._wanted and self._out_window:
            self._wanted = False
            self.receiver.drained()
        return False

    def window_adjusted(self, size: int) -> None:
        """Note that the peer grants more.

        :raise BadSequence: that makes more than there can be.
        """
        if self._out_window + size > LARGEST_WINDOW:
            raise BadSequence(f"a window of more than {LARGEST_WINDOW} B")
        was_empty = not self._out_window
        self._out_window += size
        if was_empty and (self._wanted or self._backlog is not None) and not self.is_waiting:
            self.is_waiting = True
            self._mux.wait(self)

    # Receiving

    def data_received(self, data: memoryview) -> None:
        """Deliver *data*, or keep it while paused; called by the mux.

        :raise WindowOverrun: it is more than was granted.
        :raise BadSequence: the peer said before that it sends no more.
        """
        if self._peer_ended:
            raise BadSequence("data after the end")
        size = len(data)
        self._window.arrived(size)
        self.bytes_in += size
        if self._closing or self._close_sent:
            self._grant(size)  # nobody wants it, but the peer has to get to its end
        elif self._paused or self._inbox is not None:
            if size:
                if self._inbox is None:
                    self._inbox = ReceiveQueue()
                self._inbox.keep(data)
        elif size:
            self._uncredited += size
            self.receiver.received(data)
            if self._uncredited >= _WORTH_CREDIT and not self._paused:
                self._credit()

    def _credit(self) -> None:
        """Grant what was delivered; not while the receiver wants a pause: then it has not left us yet."""
        size, self._uncredited = self._uncredited, 0
        self._grant(size)

    def _grant(self, size: int) -> None:
        if not (self._close_sent or self._peer_closed) and self._window.consumed(size):
            self._mux.renew(self, self._window)

    def pause(self) -> None:
        """See `tower.net.pipes.Pipe.pause`."""
        self._paused = True

    def resume(self) -> None:
        """See `tower.net.pipes.Pipe.resume`; what waited is delivered from within this call."""
        self._paused = False
        if self._end_reason is not None:
            self._tell_closed(self._end_reason)
        elif not self._delivering:
            self._deliver()

    def _deliver(self) -> None:
        self._delivering = True
        try:
            self._credit()
            while (inbox := self._inbox) is not None and not self._paused:
                data = inbox.take()
                if not inbox.size:
                    self._inbox = None
                self._uncredited += len(data)
                self.receiver.received(data)
                if not self._paused:
                    self._credit()
            if not self._paused:
                self._tell_end()
        finally:
            self._delivering = False

    def end_received(self) -> None:
        """Note the peer's EOF.

        :raise BadSequence: it is the second.
        """
        if self._peer_ended:
            raise BadSequence("a second end")
        self._peer_ended = True
        if not self._paused and self._inbox is None:
            self._tell_end()

    def close_received(self) -> None:
        """Note the peer's CLOSE: answer it, deliver what waits, then that is the end."""
        self._peer_closed = self._shut = True
        self._backlog = None
        self._wanted = False
        if not self._close_sent:
            self._close_sent = True
            self._mux.send_close(self.remote)
        self._mux.forget(self)
        if self._inbox is None:
            self._paused = False  # nothing is left that could be held back
        if not self._paused:
            self._tell_end()

    def _tell_end(self) -> None:
        if self._peer_ended and not (self._end_told or self._closing or self._end_reason):
            self._end_told = True
            self.receiver.ended()
        if self._peer_closed:
            self._tell_closed(ChannelEnded("closed by the other side"))
        elif self._end_told and self._end_sent and not self._close_sent:
            self._send_close(ChannelEnded("both sides are done"))

    # Ends

    def finish(self) -> None:
        """See `tower.net.pipes.Pipe.finish`."""
        if not (self._finishing or self._closing or self._close_sent):
            self._finishing = self._shut = True
            if self._backlog is None:
                self._send_end()

    def _send_end(self) -> None:
        if not (self._end_sent or self._close_sent):
            self._end_sent = True
            self._mux.send_end(self.remote)
            if self._end_told:
                self._send_close(ChannelEnded("both sides are done"))

    def close(self) -> None:
        """See `tower.net.pipes.Pipe.close`; what has come and was not delivered is dropped."""
        if self._closing or self._end_reason is not None:
            return
        self._closing = self._shut = True
        self._drop_inbox()
        if self._backlog is None:
            self._send_close(ChannelEnded("closed on our side"))

    def abort(self) -> None:
        """See `tower.net.pipes.Pipe.abort`."""
        if self._end_reason is not None:
            return
        self._closing = self._shut = True
        self._backlog = None
        self._send_close(ChannelEnded("aborted on our side"))

    def _drop_inbox(self) -> None:
        """Let the peer get to its end although nobody takes what it sends any more."""
        dropped, self._uncredited = self._uncredited, 0
        if self._inbox is not None:
            dropped += self._inbox.size
            self._inbox = None
        self._grant(dropped)

    def _send_close(self, reason: Exception) -> None:
        if not self._close_sent:
            self._close_sent = self._shut = True
            self._mux.send_close(self.remote)
        self._tell_closed(reason)

    def lost(self, reason: Exception) -> None:
        """Note that the tunnel is gone."""
        self._close_sent = self._peer_closed = self._shut = True
        self._backlog = None
        self._tell_closed(reason)

    def _tell_closed(self, reason: Exception) -> None:
        if self._end_reason is None:
            self._end_reason = reason
        self._inbox = None
        self._window.close()  # not before: what waited for a paused receiver was on loan
        receiver, self.receiver = self.receiver, NO_RECEIVER
        receiver.closed(reason)
