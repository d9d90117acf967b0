"""Messages 90 to 100 of RFC 4254: many channels over one SSH connection.  No I/O of its own.

The same object serves the proxy's end of a tunnel, the agent's, and a tunnel to a node.  It replaces
Conch's ``SSHConnection``, whose channels have no flow control and copy what they hold again and again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import ClassVar

from twisted.internet.defer import Deferred, fail

from tower.budget import Budget
from tower.conch.channel import ALWAYS_FITS, LONGEST_DATA, Channel
from tower.conch.interfaces import Owner, Wire
from tower.conch.opening import CODES, BadMessage, Incoming, StreamRefused, TunnelLost, parse_string, refusal
from tower.conch.window import ALONE, BASE, SHARED, Company, Window
from tower.pipes import Buffer

OPEN, CONFIRM, REFUSE, ADJUST, DATA, EXTENDED, END, CLOSE, REQUEST, SUCCESS, FAILURE = range(90, 101)

#: Data in one packet of ours, and while small packets of other channels would wait behind it, B.  Both divide
#: windows without a rest, which would have to go as a small packet of its own.
ALONE_PACKET = LONGEST_DATA
SHARED_PACKET = 64 * 1024

#: A peer that takes only shorter packets than this makes more work than it does, B.
SHORTEST_PACKET = 1024

#: How long after a change of channel a tunnel counts as shared, and one round trip, s.
SHARED_FOR = 0.25

#: Data in front of which a packet has padding length, type, channel and size, B.
DATA_OFFSET = 10

_ONE, _TWO, _FOUR = Struct(">BI"), Struct(">BII"), Struct(">BIIII")
_THREE = Struct(">III")
_PAIR = Struct(">II")
_NUMBER = Struct(">I")
_HEAD = Struct(">BBII")


class Mux:
    """:param wire: what messages are sent on.
    :param owner: what it belongs to; see `Channel.is_leaving`.
    :param accept: decides about channels that the peer opens; None refuses all.
    :param limit: channels at once.
    :ivar space: the process's, where the data of a packet may be put before `commit`.
    :ivar turns: channels that wait for their turn to send.
    :ivar largest: how much data the next packet may have, B.
    :ivar busiest: the channel that moved data last; `notice` is told of any other.
    :ivar is_mixed: whether small packets of several channels were noticed: then nothing more need be.
    """

    __slots__ = (
        "_accept",
        "_budget",
        "_changed",
        "_company",
        "_limit",
        "_lost",
        "_mixed_until",
        "_number",
        "_opening",
        "_packet",
        "_pending",
        "_shared_until",
        "busiest",
        "channels",
        "is_mixed",
        "largest",
        "owner",
        "space",
        "turns",
        "wire",
    )

    def __init__(
        self,
        wire: Wire,
        budget: Budget,
        owner: Owner | None = None,
        accept: Callable[[Incoming], None] | None = None,
        limit: int = 10_000,
    ) -> None:
        self.wire = wire
        self._packet = wire.lease()
        self.space = self._packet[DATA_OFFSET:]
        self.largest = ALONE_PACKET
        self._budget = budget
        self.owner = owner
        self._accept = accept
        self._limit = limit
        self.channels: dict[int, Channel] = {}
        self._opening: dict[int, Deferred[Channel]] = {}
        self._pending = 0
        self._number = 0
        self.turns: deque[Channel] | None = None  # an empty one would be as large as all the rest
        self.busiest: Channel | None = None
        self._company = Company()
        self._changed = self.is_mixed = False
        self._shared_until = self._mixed_until = 0.0
        self._lost: Exception | None = None

    # Opening

    def open(self, kind: bytes, data: bytes) -> Deferred[Channel]:
        """Ask the peer for a channel; it comes paused.

        Cancelling is allowed; a channel that the peer confirms after that is closed again.

        :raise StreamRefused: through the Deferred, with the peer's reason.
        :raise TunnelLost: through the Deferred, when the tunnel ends first.
        """
        if self._lost is not None:
            return fail(TunnelLost(str(self._lost)))
        if len(self.channels) + self._pending >= self._limit:
            return fail(StreamRefused("busy", f"there are {self._limit} streams already"))
        channel = self._add_channel()
        number = channel.local
        opening: Deferred[Channel] = Deferred(lambda _: None)
        self._opening[number] = opening
        message = _THREE.pack(number, BASE, ALONE_PACKET)
        self.wire.send(b"%c%b%b%b%b" % (OPEN, _NUMBER.pack(len(kind)), kind, message, data))
        return opening

    def _add_channel(self) -> Channel:
        """Make a channel with a number of its own."""
        while self._number in self.channels:
            self._number = self._number + 1 & 0x7FFFFFFF
        channel = Channel(self, self._number, Window(self._budget))
        self.channels[self._number] = channel
        self._number = self._number + 1 & 0x7FFFFFFF
        return channel

    def confirm(self, remote: int, window: int, longest: int) -> Channel:
        """Open a channel that the peer wants, for which `_pending` keeps a place, and tell it."""
        if self._lost is not None:
            raise TunnelLost(str(self._lost))
        self._pending -= 1
        channel = self._add_channel()
        channel.opened(remote, window, longest)
        self.wire.send(_FOUR.pack(CONFIRM, remote, channel.local, BASE, ALONE_PACKET))
        return channel

    def refuse(self, remote: int, code: str, text: str) -> None:
        """Tell the peer that it gets no channel."""
        self._pending -= 1
        if self._lost is None:
            reason = f"{code}: {text}".encode()[:1024]
            number = CODES.get(code, 2)
            self.wire.send(_TWO.pack(REFUSE, remote, number) + _NUMBER.pack(len(reason)) + reason + bytes(4))

    # What channels ask for

    def send_data(self, channel: Channel, data: Buffer) -> None:
        """Send *data*, at most `largest` bytes, as one packet."""
        size = len(data)
        if size > ALWAYS_FITS:
            self.space[:size] = data
            self.commit(channel, size)
            return
        if not (self.is_mixed or channel is self.busiest):
            self.notice(channel, size)
        self.wire.send(channel.head + size.to_bytes(4, "big") + data)

    def commit(self, channel: Channel, size: int) -> None:
        """Send the first *size* bytes that are in `space` as one packet."""
        if not (self.is_mixed or channel is self.busiest):
            self.notice(channel, size)
        if size > ALWAYS_FITS and self.largest < ALONE_PACKET:
            self._is_shared(self.wire.seconds())
        _HEAD.pack_into(self._packet, 0, 0, DATA, channel.remote, size)
        self.wire.commit(DATA_OFFSET + size)

    def send_end(self, remote: int) -> None:
        """Send EOF."""
        self.wire.send(_ONE.pack(END, remote))

    def send_close(self, remote: int) -> None:
        """Send CLOSE."""
        self.wire.send(_ONE.pack(CLOSE, remote))

    def renew(self, channel: Channel, window: Window) -> None:
        """Grant the peer more of *window*, if there is more."""
        now = self.wire.seconds()
        if not self._is_shared(now):
            near = ALONE
        elif now >= self._mixed_until:
            near = SHARED
        else:
            near = self._company.share(window, now)
        if grant := window.renew(now, self.wire.round_trip, near):
            self.wire.send(_TWO.pack(ADJUST, channel.remote, grant))

    def notice(self, channel: Channel, size: int) -> None:
        """Note that another channel is active now; no clock is asked: this is done for most packets.

        Bulk does not mind the large packets of other bulk, but small packets do.
        """
        if self.busiest is not None:
            self._changed = True
            if size <= ALWAYS_FITS:
                self.is_mixed = True
                self.largest = SHARED_PACKET
        self.busiest = channel

    def _is_shared(self, now: float) -> bool:
        """Return whether more than one channel was active of late, and bring `largest` up to date."""
        if self.is_mixed:
            self.is_mixed = False
            self._mixed_until = now + SHARED_FOR
        elif now >= self._mixed_until:
            self.largest = ALONE_PACKET
        if self._changed:
            self._changed = False
            self._shared_until = now + SHARED_FOR + self.wire.round_trip
        return now < self._shared_until

    def wait(self, channel: Channel) -> None:
        """Give *channel* its turn as soon as the tunnel takes bytes again."""
        if self.turns is None:
            self.turns = deque()
        self.turns.append(channel)
        if not self.wire.congested:
            self.wire.soon()

    def drained(self) -> None:
        """Give every channel that waits its turn, round and round, until the tunnel is full again."""
        turns = self.turns
        while turns and not self.wire.congested:
            channel = turns.popleft()
            channel.is_waiting = False  # or what waits again in its turn would wait for ever
            if channel.turn() and not channel.is_waiting:
                channel.is_waiting = True
                turns.append(channel)
        if not turns:
            self.turns = None

    def forget(self, channel: Channel) -> None:
        """Free the number of *channel*, which is closed on both sides."""
        self.channels.pop(channel.local, None)
        if self.busiest is channel:
            self.busiest = None

    # Messages

    def message(self, kind: int, payload: memoryview) -> None:
        """Handle one message; *payload* begins with its type and is valid only during the call.

        :raise PeerError: the peer broke the protocol; drop the tunnel.
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
            handler = self._handlers.get(kind)
            if handler is None:
                raise BadMessage(f"message {kind} is not known")
            handler(self, self._channel(payload), payload)

    def _channel(self, payload: memoryview) -> Channel:
        (number,) = _NUMBER.unpack_from(payload, 1)
        channel = self.channels.get(number)
        if channel is None or number in self._opening:
            raise BadMessage(f"message {payload[0]} for channel {number}, which is not open")
        return channel

    def data(self, packet: memoryview, begin: int, end: int) -> None:
        """Handle ``packet[begin:end]``, a message with data; otherwise as `message`.

        :raise PeerError: the peer broke the protocol; drop the tunnel.
        """
        if end - begin < 9:
            raise BadMessage("data without a length")
        number, size = _PAIR.unpack_from(packet, begin + 1)
        begin += 9
        if end != begin + size:
            raise BadMessage("data of another length than it says")
        channel = self.channels.get(number)
        if channel is None or number in self._opening:
            raise BadMessage(f"data for channel {number}, which is not open")
        if not (self.is_mixed or channel is self.busiest):
            self.notice(channel, size)
        channel.data_received(packet[begin:end])

    def _opened(self, payload: memoryview) -> None:
        kind, offset = parse_string(payload, 1)
        if len(payload) < offset + 12:
            raise BadMessage("a channel open without its numbers")
        remote, window, longest = _THREE.unpack_from(payload, offset)
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
        (number,) = _NUMBER.unpack_from(payload, 1)
        opening = self._opening.get(number)
        if opening is None:
            raise BadMessage(f"an answer about channel {number}, which nobody wants to open")
        channel = self.channels[number]
        if kind == REFUSE:
            text, _ = parse_string(payload, 9)
            del self._opening[number]
            self.forget(channel)
            if not opening.called:
                opening.errback(refusal(text, _NUMBER.unpack_from(payload, 5)[0]))
            return
        if len(payload) < 17:
            raise BadMessage("a confirmation without its numbers")
        remote, window, longest = _THREE.unpack_from(payload, 5)
        if longest < SHORTEST_PACKET:
            raise BadMessage(f"packets of at most {longest} B")
        del self._opening[number]
        channel.opened(remote, window, longest)
        if opening.called:
            channel.abort()
        else:
            opening.callback(channel)

    def _adjusted(self, channel: Channel, payload: memoryview) -> None:
        if len(payload) < 9:
            raise BadMessage("a window adjustment without a size")
        self._is_shared(self.wire.seconds())
        channel.window_adjusted(_NUMBER.unpack_from(payload, 5)[0])

    def _extended(self, channel: Channel, payload: memoryview) -> None:
        raise BadMessage("extended data, which no channel of ours has")

    def _ended(self, channel: Channel, payload: memoryview) -> None:
        channel.end_received()

    def _closed(self, channel: Channel, payload: memoryview) -> None:
        channel.close_received()

    def _requested(self, channel: Channel, payload: memoryview) -> None:
        _, offset = parse_string(payload, 5)
        if offset == len(payload):
            raise BadMessage("a channel request that does not say whether it wants a reply")
        if payload[offset] and not channel.close_sent:
            self.wire.send(_ONE.pack(FAILURE, channel.remote))

    def _replied(self, channel: Channel, payload: memoryview) -> None:
        raise BadMessage("an answer to a channel request, none of which we make")

    _handlers: ClassVar[dict[int, Callable[[Mux, Channel, memoryview], None]]] = {
        ADJUST: _adjusted,
        EXTENDED: _extended,
        END: _ended,
        CLOSE: _closed,
        REQUEST: _requested,
        SUCCESS: _replied,
        FAILURE: _replied,
    }

    def lost(self, reason: Exception) -> None:
        """End every channel; the tunnel is gone."""
        self._lost = reason
        if self.turns:
            self.turns.clear()
        self.turns = None
        self.busiest = None  # or mux and channel would hold each other
        opening, self._opening = self._opening, {}
        channels, self.channels = self.channels, {}
        for number, waiting in opening.items():
            channels.pop(number).lost(reason)
            if not waiting.called:
                waiting.errback(TunnelLost(str(reason)))
        for channel in channels.values():
            channel.lost(TunnelLost(str(reason)))
