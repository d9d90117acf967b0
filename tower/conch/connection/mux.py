"""Multiplexes channels over one SSH connection: messages 90 to 100 of RFC 4254.  No I/O.

The same class serves the proxy's end of a tunnel, the agent's, and a tunnel to a node.  It replaces Conch's
``SSHConnection``, whose channels have no flow control and copy their buffers repeatedly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred, fail

from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import CODES, BadMessage, Incoming, parse_string, refused
from tower.conch.connection.fairness import Fairness
from tower.conch.connection.messages import (
    ABOUT,
    ABOUT_WITH,
    ADJUST,
    ALWAYS_FITS,
    CLOSE,
    CONFIRM,
    DATA,
    DATA_HEAD,
    DATA_OFFSET,
    END,
    EXTENDED,
    FAILURE,
    LONGEST_DATA,
    NUMBER,
    OPEN,
    PAIR,
    REFUSE,
    REQUEST,
    SHORTEST_PACKET,
    THREE,
    confirmation,
    opening,
    refusal,
)
from tower.conch.connection.traffic import Traffic
from tower.conch.connection.window import BASE, Window
from tower.errors import StreamRefused, TunnelLost
from tower.net.budget import Budget
from tower.net.pipes import Buffer, TunnelOwner

if TYPE_CHECKING:
    from tower.conch.tunnel.outlet import Outlet


@mypyc_attr(allow_interpreted_subclasses=True)
class Mux:
    """Multiplexer of one tunnel.

    :param owner: its tunnel; see `Channel.is_leaving`.
    :param accept: decides about channels that the peer opens; None refuses all.
    :param limit: channels at one time.
    :param traffic: counts the channels together with those of other tunnels; None: nothing does.
    :ivar space: the process's buffer for the data of a packet, before `commit`.
    """

    __slots__ = (
        "_accept",
        "_budget",
        "_limit",
        "_lost",
        "_number",
        "_opening",
        "_packet",
        "_pending",
        "_traffic",
        "channels",
        "fairness",
        "owner",
        "space",
        "waiting",
        "wire",
    )

    def __init__(
        self,
        wire: Outlet,
        budget: Budget,
        owner: TunnelOwner | None = None,
        accept: Callable[[Incoming], None] | None = None,
        limit: int = 10_000,
        traffic: Traffic | None = None,
    ) -> None:
        self.wire = wire
        self._packet = wire.lease()
        self.space = self._packet[DATA_OFFSET:]
        self.fairness = Fairness(wire)
        self._budget = budget
        self.owner = owner
        self._accept = accept
        self._limit = limit
        self.channels: dict[int, Channel] = {}
        self._opening: dict[int, Deferred[Channel]] = {}
        self._pending = 0
        self._number = 0
        self.waiting: deque[Channel] | None = None  # an empty deque would be as large as everything else
        self._lost: Exception | None = None
        self._traffic = traffic
        if traffic is not None:
            traffic.attach(self)

    # Opening

    def open(self, kind: bytes, data: bytes) -> Deferred[Channel]:
        """Open a channel; it starts paused.

        Cancelling is allowed; a channel that the peer confirms after that is closed again.

        :raise StreamRefused: through the Deferred, with the peer's reason.
        :raise TunnelLost: through the Deferred, if the tunnel ends first.
        """
        if self._lost is not None:
            return fail(TunnelLost(str(self._lost)))
        if len(self.channels) + self._pending >= self._limit:
            return fail(StreamRefused("busy", f"there are {self._limit} streams already"))
        channel = self._add_channel()
        number = channel.local
        opened: Deferred[Channel] = Deferred(lambda _: None)
        self._opening[number] = opened
        self.wire.send(opening(kind, number, BASE, data))
        return opened

    def _add_channel(self) -> Channel:
        """Create a channel with a free number."""
        while self._number in self.channels:
            self._number = self._number + 1 & 0x7FFFFFFF
        channel = Channel(self, self._number, Window(self._budget))
        self.channels[self._number] = channel
        self._number = self._number + 1 & 0x7FFFFFFF
        return channel

    def confirm(self, remote: int, window: int, longest: int) -> Channel:
        """Accept a channel that the peer wants to open; `_pending` counts it until then."""
        if self._lost is not None:
            raise TunnelLost(str(self._lost))
        self._pending -= 1
        channel = self._add_channel()
        channel.opened(remote, window, longest)
        self.wire.send(confirmation(remote, channel.local, BASE))
        return channel

    def refuse(self, remote: int, code: str, text: str) -> None:
        """Refuse a channel that the peer wants to open."""
        self._pending -= 1
        if self._lost is None:
            self.wire.send(refusal(remote, CODES.get(code, 2), f"{code}: {text}"))

    # Called by channels

    def send_data(self, channel: Channel, data: Buffer) -> None:
        """Send *data*, at most `Fairness.largest` bytes, as one packet."""
        size = len(data)
        if size > ALWAYS_FITS:
            self.space[:size] = data
            self.commit(channel, size)
            return
        fairness = self.fairness
        if not (fairness.is_mixed or channel is fairness.last_active):
            fairness.record(channel, size)
        self.wire.send(channel.head + size.to_bytes(4, "big") + data)

    def commit(self, channel: Channel, size: int) -> None:
        """Send the first *size* bytes of `space` as one packet."""
        fairness = self.fairness
        if not (fairness.is_mixed or channel is fairness.last_active):
            fairness.record(channel, size)
        if size > ALWAYS_FITS and fairness.largest < LONGEST_DATA:
            fairness.update(self.wire.seconds())
        DATA_HEAD.pack_into(self._packet, 0, 0, DATA, channel.remote, size)
        self.wire.commit(DATA_OFFSET + size)

    def send_end(self, remote: int) -> None:
        """Send EOF."""
        self.wire.send(ABOUT.pack(END, remote))

    def send_close(self, remote: int) -> None:
        """Send CLOSE."""
        self.wire.send(ABOUT.pack(CLOSE, remote))

    def renew(self, channel: Channel, window: Window) -> None:
        """Grant the peer credit of *window*, if there is any."""
        wire = self.wire
        now = wire.seconds()
        if grant := window.renew(now, wire.round_trip, self.fairness.window_limit(window, now)):
            wire.send(ABOUT_WITH.pack(ADJUST, channel.remote, grant))

    def wait(self, channel: Channel) -> None:
        """Queue *channel* until the tunnel takes data again."""
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(channel)
        if not self.wire.congested:
            self.wire.soon()

    def drained(self) -> None:
        """Let waiting channels send, one packet each in turn, until the tunnel is congested again."""
        waiting = self.waiting
        while waiting and not self.wire.congested:
            channel = waiting.popleft()
            channel.is_waiting = False  # before `send_queued`, which may queue it again
            if channel.send_queued() and not channel.is_waiting:
                channel.is_waiting = True
                waiting.append(channel)
        if not waiting:
            self.waiting = None

    def forget(self, channel: Channel) -> None:
        """Free the number of *channel*, which is closed on both sides."""
        if self.channels.pop(channel.local, None) is not None and self._traffic is not None:
            self._traffic.ended(channel)
        self.fairness.forget(channel)

    # Messages

    def message(self, kind: int, payload: memoryview) -> None:
        """Handle one message; *payload* begins with its type and is valid only during the call.

        :raise PeerError: the peer broke the protocol; close the tunnel.
        """
        if len(payload) < 5:
            raise BadMessage(f"message {kind} of {len(payload)} B")
        if kind == DATA:
            self.data(payload, 0, len(payload))
        elif kind == OPEN:
            self._opened(payload)
        elif kind in (CONFIRM, REFUSE):
            self._answered(kind, payload)
        else:
            self._message_of_channel(kind, payload)

    def _message_of_channel(self, kind: int, payload: memoryview) -> None:
        if not ADJUST <= kind <= FAILURE:
            raise BadMessage(f"unknown message {kind}")
        channel = self._channel(payload)
        if kind == ADJUST:
            self._adjusted(channel, payload)
        elif kind == END:
            channel.end_received()
        elif kind == CLOSE:
            channel.close_received()
        elif kind == REQUEST:
            self._requested(channel, payload)
        elif kind == EXTENDED:
            raise BadMessage("extended data, which no channel here has")
        else:
            raise BadMessage("a reply to a channel request, and none was sent")

    def _channel(self, payload: memoryview) -> Channel:
        (number,) = NUMBER.unpack_from(payload, 1)
        channel = self.channels.get(number)
        if channel is None or number in self._opening:
            raise BadMessage(f"message {payload[0]} for channel {number}, which is not open")
        return channel

    def data(self, packet: memoryview, begin: int, end: int) -> None:
        """Handle ``packet[begin:end]``, a message with data; otherwise as `message`.

        :raise PeerError: the peer broke the protocol; close the tunnel.
        """
        if end - begin < 9:
            raise BadMessage("data without a length")
        number, size = PAIR.unpack_from(packet, begin + 1)
        begin += 9
        if end != begin + size:
            raise BadMessage("data whose length differs from its length field")
        channel = self.channels.get(number)
        if channel is None or number in self._opening:
            raise BadMessage(f"data for channel {number}, which is not open")
        fairness = self.fairness
        if not (fairness.is_mixed or channel is fairness.last_active):
            fairness.record(channel, size)
        channel.data_received(packet[begin:end])

    def _opened(self, payload: memoryview) -> None:
        kind, offset = parse_string(payload, 1)
        if len(payload) < offset + 12:
            raise BadMessage("a channel open without its numbers")
        remote, window, longest = THREE.unpack_from(payload, offset)
        incoming = Incoming(self, remote, window, longest, kind, bytes(payload[offset + 12 :]))
        self._pending += 1
        if self._accept is None:
            incoming.refuse("not-allowed", "this side opens channels, it does not accept them")
        elif longest < SHORTEST_PACKET:
            incoming.refuse("not-allowed", f"packets are at least {SHORTEST_PACKET} B here")
        elif len(self.channels) + self._pending > self._limit:
            incoming.refuse("busy", f"there are {self._limit} streams already")
        else:
            self._accept(incoming)

    def _answered(self, kind: int, payload: memoryview) -> None:
        (number,) = NUMBER.unpack_from(payload, 1)
        waiting = self._opening.get(number)
        if waiting is None:
            raise BadMessage(f"a reply for channel {number}, which is not being opened")
        channel = self.channels[number]
        if kind == REFUSE:
            text, _ = parse_string(payload, 9)
            del self._opening[number]
            self.forget(channel)
            if not waiting.called:
                waiting.errback(refused(text, NUMBER.unpack_from(payload, 5)[0]))
            return
        if len(payload) < 17:
            raise BadMessage("a confirmation without its numbers")
        remote, window, longest = THREE.unpack_from(payload, 5)
        if longest < SHORTEST_PACKET:
            raise BadMessage(f"packets of at most {longest} B")
        del self._opening[number]
        channel.opened(remote, window, longest)
        if waiting.called:
            channel.abort()
        else:
            waiting.callback(channel)

    def _adjusted(self, channel: Channel, payload: memoryview) -> None:
        if len(payload) < 9:
            raise BadMessage("a window adjustment without a size")
        self.fairness.update(self.wire.seconds())
        channel.window_adjusted(NUMBER.unpack_from(payload, 5)[0])

    def _requested(self, channel: Channel, payload: memoryview) -> None:
        _, offset = parse_string(payload, 5)
        if offset == len(payload):
            raise BadMessage("a channel request without the want-reply flag")
        if payload[offset] and not channel.close_sent:
            self.wire.send(ABOUT.pack(FAILURE, channel.remote))

    def lost(self, reason: Exception) -> None:
        """Close every channel: the tunnel is lost."""
        self._lost = reason
        if self.waiting:
            self.waiting.clear()
        self.waiting = None
        self.fairness.last_active = None  # breaks the cycle of mux and channel
        unanswered, self._opening = self._opening, {}
        channels, self.channels = self.channels, {}
        traffic, self._traffic = self._traffic, None
        if traffic is not None:
            traffic.detach(self)
            for channel in channels.values():
                traffic.ended(channel)
        for number, waiting in unanswered.items():
            channels.pop(number).lost(reason)
            if not waiting.called:
                waiting.errback(TunnelLost(str(reason)))
        for channel in channels.values():
            channel.lost(TunnelLost(str(reason)))
