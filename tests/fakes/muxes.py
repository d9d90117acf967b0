"""Muxes without a tunnel: one on a wire that writes down, and two that are joined in memory."""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.receivers import Recorder
from tower.conch.connection.channel import Channel
from tower.conch.connection.channel_open import Incoming
from tower.conch.connection.messages import DATA_OFFSET, LONGEST_DATA
from tower.conch.connection.mux import Mux
from tower.conch.connection.traffic import Traffic
from tower.conch.tunnel.outlet import Outlet
from tower.net.budget import Budget

KIND = b"stream@tower.kubesphere.io"


class MemoryWire(Outlet):
    """Fakes the tunnel of a mux.

    :ivar sent: the messages sent and not taken yet.
    :ivar delay: the round trip, s.
    :ivar wants_turn: whether `Mux.drained` must be called.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.congested = False
        self._buffer = memoryview(bytearray(DATA_OFFSET + LONGEST_DATA + 64))
        self.sent: deque[bytes] = deque()
        self._room = 1 << 40
        self.wants_turn = False
        self.delay = 0.05

    @property
    def round_trip(self) -> float:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        return self.delay

    @property
    def room(self) -> int:
        """The bytes that may be sent until data must wait."""
        return self._room

    @room.setter
    def room(self, size: int) -> None:
        self._room = size
        self.congested = size <= 0

    def send(self, payload: bytes) -> None:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        self.room -= len(payload)
        self.sent.append(payload)

    def lease(self) -> memoryview:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        return self._buffer

    def commit(self, size: int) -> None:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        self.send(bytes(self._buffer[1:size]))

    def soon(self) -> None:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        self.wants_turn = True

    def seconds(self) -> float:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        return self._clock.seconds()

    def take(self) -> list[bytes]:
        """Return what was sent since the last call."""
        sent = list(self.sent)
        self.sent.clear()
        return sent


class MuxEnd:
    """A mux on a `MemoryWire`.

    :ivar incoming: what the peer wanted opened.
    :ivar traffic: counts the streams.
    :ivar draining: see `tower.net.pipes.TunnelOwner`.
    """

    draining = False

    def __init__(self, clock: Clock, *, accept: bool = True, limit: int = 10_000) -> None:
        self.wire = MemoryWire(clock)
        self.budget = Budget(64 << 20)
        self.incoming: list[Incoming] = []
        self.traffic = Traffic()
        accepts = self.incoming.append if accept else None
        self.mux = Mux(self.wire, self.budget, self, accepts, limit, self.traffic)

    def hear(self, message: bytes) -> None:
        """Handle a message of the peer, from a buffer that is overwritten afterwards."""
        buffer = bytearray(message)
        self.mux.message(message[0], memoryview(buffer))
        buffer[:] = bytes(len(buffer))

    def turn(self) -> bool:
        """Call `Mux.drained` if `MemoryWire.soon` was called; return whether it was."""
        wanted, self.wire.wants_turn = self.wire.wants_turn, False
        if wanted and not self.wire.congested:
            self.mux.drained()
        return wanted

    def relieve(self, room: int = 1 << 40) -> None:
        """Take data again, up to *room* bytes."""
        self.wire.room = room
        self.mux.drained()


class MuxPair:
    """Two muxes; the test delivers their messages.

    :ivar near: opens channels.
    :ivar far: accepts them.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.near, self.far = MuxEnd(self.clock), MuxEnd(self.clock)

    def deliver(self, end: MuxEnd, count: int = 1) -> bool:
        """Deliver messages of the other end to *end*; return whether there were any."""
        sent = (self.far if end is self.near else self.near).wire.sent
        moved = False
        while sent and count > 0:
            end.hear(sent.popleft())
            count -= 1
            moved = True
        return moved

    def pump(self) -> None:
        """Deliver messages until there are none."""
        busy = True
        while busy:
            busy = False
            for end in (self.near, self.far):
                busy |= end.turn()
                busy |= self.deliver(end, 1 << 30)

    def open(self, near: Recorder, far: Recorder) -> tuple[Channel, Channel]:
        """Return both ends of a new channel, resumed."""
        opened: list[Channel] = []
        opening: Deferred[Channel] = self.near.mux.open(KIND, b"")
        opening.addCallback(opened.append)
        self.pump()
        there = self.far.incoming.pop().accept()
        self.pump()
        ends = opened[0], there
        for end, receiver in zip(ends, (near, far), strict=True):
            end.receiver = receiver
            end.resume()
        return ends
