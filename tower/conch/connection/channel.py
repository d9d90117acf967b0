"""An SSH channel (RFC 4254 section 5) as a pipe: windows, half close, bounded queues.

Data received while the channel is paused waits in it without credit: the window bounds it and stops the
sender.  Data that cannot be sent, for want of window or of room in the tunnel, waits too; then `Channel.send`
returns False.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tower.conch.connection.messages import ALWAYS_FITS, LARGEST_WINDOW, BadSequence, data_head
from tower.conch.connection.receive_queue import ReceiveQueue
from tower.conch.connection.window import SHARED, Window
from tower.errors import TowerError
from tower.net.pipes import NO_RECEIVER, Buffer, Receiver
from tower.net.send_queue import SendQueue

if TYPE_CHECKING:
    from tower.conch.connection.mux import Mux

#: Delivered data is credited from this size on; no window depends on less, B.
_WORTH_CREDIT: Final = 8 * 1024


class ChannelEnded(TowerError):
    """The channel is closed."""


class Channel:
    """One stream in a tunnel; a `tower.net.pipes.Pipe`.  It starts paused.

    To the peer, a channel closed without `finish` looks like a cut one: `Receiver.closed` comes without
    `Receiver.ended` before it.

    :ivar local, remote: our channel number and the peer's.
    :ivar label: its purpose, by which channels are counted; set by its owner.
    :ivar head: first bytes of a message with data for it.
    :ivar bytes_in, bytes_out: bytes received and sent.
    :ivar close_sent: whether CLOSE was sent: then nothing more must be sent about the channel.
    :ivar stalled: time that data waited, in either direction, because its receiver did not read, s; updated
        when such a wait ends.
    :ivar is_waiting: whether it is in the queue of the mux, to send or to call `Receiver.drained`.
    """

    __slots__ = (
        "__weakref__",
        "_closing",
        "_delivering",
        "_end_delivered",
        "_end_reason",
        "_end_sent",
        "_fairness",
        "_finishing",
        "_fits",
        "_longest",
        "_mux",
        "_out_window",
        "_paused",
        "_peer_closed",
        "_peer_ended",
        "_receive_queue",
        "_send_queue",
        "_shut",
        "_starved_since",
        "_uncredited",
        "_wanted",
        "_window",
        "_wire",
        "bytes_in",
        "bytes_out",
        "close_sent",
        "head",
        "is_waiting",
        "label",
        "local",
        "receiver",
        "remote",
        "stalled",
    )

    def __init__(self, mux: Mux, local: int, window: Window) -> None:
        self._mux = mux
        self._wire = mux.wire
        self._fairness = mux.fairness
        self.local = local
        self.label = ""
        self.receiver: Receiver = NO_RECEIVER
        self._window = window
        self.remote = self._out_window = self._longest = self._fits = 0
        self.head = b""
        self._send_queue: SendQueue | None = None  # exists only while it holds data, like the receive queue
        self._receive_queue: ReceiveQueue | None = None
        self._paused = True
        self._delivering = False
        self._wanted = False
        self.is_waiting = False
        self._peer_ended = self._peer_closed = self._end_delivered = False
        self._finishing = self._end_sent = self._closing = self.close_sent = self._shut = False
        self._end_reason: Exception | None = None
        self._uncredited = 0
        self.bytes_in = self.bytes_out = 0
        self.stalled = self._starved_since = 0.0

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` that are not sent yet."""
        return 0 if self._send_queue is None else self._send_queue.size

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closing or self.close_sent or self._peer_closed

    @property
    def is_large(self) -> bool:
        """Whether either side granted it a large window, which cannot be taken back while it is open."""
        return max(self._window.size, self._out_window) > SHARED

    @property
    def is_leaving(self) -> bool:
        """Whether its tunnel is draining."""
        owner = self._mux.owner
        return owner is not None and owner.draining

    @property
    def stalled_so_far(self) -> float:
        """`stalled`, with waits that go on."""
        queue, starved = self._receive_queue, self._starved_since
        if queue is None and not starved:
            return self.stalled
        now = self._wire.seconds()
        return self.stalled + (now - starved if starved else 0.0) + (now - queue.since if queue else 0.0)

    def opened(self, remote: int, window: int, longest: int) -> None:
        """Store what the peer granted; called by the mux."""
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
            and self._send_queue is None
            and not self._wire.congested
        ):
            self._out_window -= size
            self.bytes_out += size
            fairness, wire = self._fairness, self._wire  # as `Mux.send_data`, with one call less
            if not (fairness.is_mixed or self is fairness.last_active):
                fairness.record(self, size)
            wire.send(self.head + size.to_bytes(4, "big") + data)
            if not wire.congested:
                return True
            if not self.close_sent:  # else the tunnel was lost in this call
                self._wait()
            return False
        return self._send_in_pieces(data, size)

    def _send_in_pieces(self, data: Buffer, size: int) -> bool:
        sent = 0
        if self._send_queue is None:
            while sent < size and (piece := self._room(size - sent)):
                self._mux.send_data(self, data[sent : sent + piece] if sent or piece < size else data)
                self._out_window -= piece
                sent += piece
            if self.close_sent:
                return False  # the tunnel was lost in this call
        self.bytes_out += size
        if sent < size:
            if self._send_queue is None:
                self._send_queue = SendQueue()
            self._send_queue.add(data[sent:])
        elif self._send_queue is None and not self._wire.congested:
            return True
        self._wait()
        return False

    def lease(self) -> memoryview | None:
        """See `tower.net.pipes.Lender.lease`; all channels share one buffer: fill it and `commit` at once."""
        if self._shut:
            return None
        room = min(self._out_window, self._longest, self._fairness.largest)
        if self._send_queue is not None or not room or self._wire.congested:
            self._wait()
            return None
        return self._mux.space[:room]

    def commit(self, size: int) -> None:
        """Send the first *size* bytes of the leased buffer, if any."""
        if not size:
            return
        self._out_window -= size
        self.bytes_out += size
        self._mux.commit(self, size)

    def _room(self, wanted: int) -> int:
        """Return how many of *wanted* bytes fit into the next packet."""
        if self._wire.congested:
            return 0
        return min(wanted, self._out_window, self._longest, self._fairness.largest)

    def _wait(self) -> None:
        """Join the queue of the mux, for `send_queued` and then `Receiver.drained`."""
        self._wanted = True
        if not self._out_window:
            if not self._starved_since:
                self._starved_since = self._wire.seconds()
        elif not self.is_waiting:
            self.is_waiting = True
            self._mux.wait(self)

    def send_queued(self) -> bool:
        """Send one queued packet; return whether to queue the channel again.

        Called by the mux with `is_waiting` unset, so that `drained` may queue it again.
        """
        queue = self._send_queue
        if queue is not None:
            first = queue.first()
            if room := self._room(len(first)):
                self._mux.send_data(self, first[:room])
                if self.close_sent:
                    return False  # the tunnel was lost in this call
                self._out_window -= room
                queue.advance(room)
            if queue.size:
                return self._out_window > 0
            self._send_queue = None
        if self._closing:
            if self._finishing:
                self._send_end()  # all data was sent, so this is a clean end
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
        """Add to the window that the peer granted.

        :raise BadSequence: the window would exceed 2**32 - 1 bytes.
        """
        if self._out_window + size > LARGEST_WINDOW:
            raise BadSequence(f"a window of more than {LARGEST_WINDOW} B")
        was_empty = not self._out_window
        self._out_window += size
        if self._starved_since:
            self.stalled += self._wire.seconds() - self._starved_since
            self._starved_since = 0.0
        if was_empty and (self._wanted or self._send_queue is not None) and not self.is_waiting:
            self.is_waiting = True
            self._mux.wait(self)

    # Receiving

    def data_received(self, data: memoryview) -> None:
        """Deliver *data*, or keep it while paused; called by the mux.

        :raise WindowOverrun: it exceeds the granted window.
        :raise BadSequence: the peer already sent EOF.
        """
        if self._peer_ended:
            raise BadSequence("data after the end")
        size = len(data)
        self._window.arrived(size)
        self.bytes_in += size
        if self._closing or self.close_sent:
            self._grant(size)  # dropped, but the peer needs credit to reach its end
        elif self._paused or self._receive_queue is not None:
            if size:
                if self._receive_queue is None:
                    self._receive_queue = ReceiveQueue(self._wire.seconds())
                self._receive_queue.keep(data)
        elif size:
            self._uncredited += size
            self.receiver.received(data)
            if self._uncredited >= _WORTH_CREDIT and not self._paused:
                self._credit()

    def _credit(self) -> None:
        """Credit delivered data; not while the receiver pauses, since it may still hold the data."""
        size, self._uncredited = self._uncredited, 0
        self._grant(size)

    def _grant(self, size: int) -> None:
        if not (self.close_sent or self._peer_closed) and self._window.consumed(size):
            self._mux.renew(self, self._window)

    def pause(self) -> None:
        """See `tower.net.pipes.Pipe.pause`."""
        self._paused = True

    def resume(self) -> None:
        """See `tower.net.pipes.Pipe.resume`; delivers waiting data before it returns."""
        self._paused = False
        if self._end_reason is not None:
            self._deliver_closed(self._end_reason)
        elif not self._delivering:
            self._deliver()

    def _deliver(self) -> None:
        self._delivering = True
        try:
            self._credit()
            while (queue := self._receive_queue) is not None and not self._paused:
                data = queue.take()
                if not queue.size:
                    self._receive_queue = None
                    self.stalled += self._wire.seconds() - queue.since
                self._uncredited += len(data)
                self.receiver.received(data)
                if not self._paused:
                    self._credit()
            if not self._paused:
                self._deliver_end()
        finally:
            self._delivering = False

    def end_received(self) -> None:
        """Handle the peer's EOF.

        :raise BadSequence: it is the second.
        """
        if self._peer_ended:
            raise BadSequence("a second end")
        self._peer_ended = True
        if not self._paused and self._receive_queue is None:
            self._deliver_end()

    def close_received(self) -> None:
        """Handle the peer's CLOSE: answer it and deliver the remaining data."""
        self._peer_closed = self._shut = True
        self._send_queue = None
        self._wanted = False
        if not self.close_sent:
            self.close_sent = True
            self._mux.send_close(self.remote)
        self._mux.forget(self)
        if self._receive_queue is None:
            self._paused = False  # no data is left to hold back
        if not self._paused:
            self._deliver_end()

    def _deliver_end(self) -> None:
        if self._peer_ended and not (self._end_delivered or self._closing or self._end_reason):
            self._end_delivered = True
            self.receiver.ended()
        if self._peer_closed:
            self._deliver_closed(ChannelEnded("closed by the other side"))
        elif self._end_delivered and self._end_sent and not self.close_sent:
            self._send_close(ChannelEnded("both sides are done"))

    # Ends

    def finish(self) -> None:
        """See `tower.net.pipes.Pipe.finish`."""
        if not (self._finishing or self._closing or self.close_sent):
            self._finishing = self._shut = True
            if self._send_queue is None:
                self._send_end()

    def _send_end(self) -> None:
        if not (self._end_sent or self.close_sent):
            self._end_sent = True
            self._mux.send_end(self.remote)
            if self._end_delivered:
                self._send_close(ChannelEnded("both sides are done"))

    def close(self) -> None:
        """See `tower.net.pipes.Pipe.close`; undelivered data is dropped."""
        if self._closing or self._end_reason is not None:
            return
        self._closing = self._shut = True
        self._drop_received()
        if self._send_queue is None:
            self._send_close(ChannelEnded("closed on our side"))

    def abort(self) -> None:
        """See `tower.net.pipes.Pipe.abort`."""
        if self._end_reason is not None:
            return
        self._closing = self._shut = True
        self._send_queue = None
        self._send_close(ChannelEnded("aborted on our side"))

    def _drop_received(self) -> None:
        """Drop undelivered data, with credit for it: the peer must be able to reach its end."""
        if self._receive_queue is not None:
            self._uncredited += self._receive_queue.size
            self._forget_received()
        self._credit()

    def _forget_received(self) -> None:
        queue, self._receive_queue = self._receive_queue, None
        if queue is not None:
            self.stalled += self._wire.seconds() - queue.since  # else the total would decrease

    def _send_close(self, reason: Exception) -> None:
        if not self.close_sent:
            self.close_sent = self._shut = True
            self._mux.send_close(self.remote)
        self._deliver_closed(reason)

    def lost(self, reason: Exception) -> None:
        """Close the channel because the tunnel is lost."""
        self.close_sent = self._peer_closed = self._shut = True
        self._send_queue = None
        self._deliver_closed(reason)

    def _deliver_closed(self, reason: Exception) -> None:
        if self._end_reason is None:
            self._end_reason = reason
        if self._receive_queue is not None:
            self._forget_received()
        self._window.close()  # only now: data kept for a paused receiver counted as borrowed
        receiver, self.receiver = self.receiver, NO_RECEIVER
        receiver.closed(reason)
