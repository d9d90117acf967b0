"""Tests of `tower.net.pipes`: two pipes spliced."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.living import living
from tests.fakes.muxes import MuxPair
from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tests.fakes.sockets import SocketReactor, socket_pair, take
from tower.net.connection import Connection
from tower.net.pipes import Buffer, Splice, join


class SpliceTests(SynchronousTestCase):
    """Passes bytes, ends and pauses on."""

    def setUp(self) -> None:
        """Join two pipes."""
        self.one, self.two = FakePipe(), FakePipe()
        join(self.one, self.two)

    def test_bytes(self) -> None:
        """Both ways, as they come, and counted."""
        self.one.deliver(b"there")
        self.two.deliver(b"back")
        self.assertEqual((self.two.sent, self.one.sent), (b"there", b"back"))
        receiver = self.one.receiver
        assert isinstance(receiver, Splice)
        self.assertEqual(receiver.forwarded, 5)

    def test_full(self) -> None:
        """A full side stops the other one until it has room, and only that one."""
        self.two.full = True
        self.one.deliver(b"x")
        self.assertEqual((self.one.paused, self.two.paused), (True, False))
        self.one.deliver(b"y")
        self.assertEqual(self.two.sent, b"x")
        self.two.drain()
        self.assertEqual((self.one.paused, self.two.sent), (False, b"xy"))

    def test_half_close(self) -> None:
        """An end is passed on as an end; the other direction goes on."""
        self.one.end()
        self.assertTrue(self.two.finished)
        self.assertFalse(self.two.closing)
        self.two.deliver(b"answer")
        self.assertEqual(self.one.sent, b"answer")

    def test_closed_after_the_end(self) -> None:
        """A pipe that goes after its end lets the other one flush."""
        self.one.end()
        self.one.lose()
        self.assertEqual((self.two.closing, self.two.aborted), (True, False))
        self.two.lose()

    def test_cut(self) -> None:
        """A pipe that goes without an end is a cut, and is passed on as one."""
        self.one.lose()
        self.assertTrue(self.two.aborted)
        self.assertTrue(self.two.lost)

    def test_both_lost(self) -> None:
        """The first that goes takes the other along, once."""
        self.two.lose()
        self.one.lose()
        self.assertTrue(self.one.aborted)
        self.assertFalse(self.two.aborted)


class _Breaking(FakePipe):
    """Lends room, but breaks when something is sent."""

    def send(self, data: Buffer) -> bool:
        """Be lost."""
        self.lose()
        return False

    def lease(self) -> memoryview | None:
        """Lend room."""
        return memoryview(bytearray(1 << 16))

    def commit(self, size: int) -> None:
        """Take it."""


class LenderTests(SynchronousTestCase):
    """Receives bulk directly into a channel's send buffer."""

    def setUp(self) -> None:
        """Join a socket and a channel."""
        self.reactor, self.mux = SocketReactor(), MuxPair()
        self.far = Recorder()
        self.channel, _ = self.mux.open(Recorder(), self.far)
        inside, self.outside = socket_pair(1 << 20)
        self.addCleanup(self.outside.close)
        self.connection = Connection(self.reactor, inside)
        self.addCleanup(self.connection.abort)
        join(self.connection, self.channel)

    def pass_on(self, data: bytes) -> bool:
        """Send *data* from outside; return whether the splice wants the next piece put into a packet."""
        self.outside.sendall(data)
        self.reactor.run(self._carry)
        return getattr(self.connection.receiver, "buffer", None) is not None

    def _carry(self) -> bool:
        wires = self.mux.near.wire, self.mux.far.wire
        busy = any(wire.sent or wire.wants_turn for wire in wires)
        self.mux.pump()
        return busy

    def test_changes(self) -> None:
        """After a large piece, until a small one comes; the bytes are the same either way."""
        large, small = bytes(range(256)) * 128, b"small"
        direct = [self.pass_on(piece) for piece in (small, large, large, small, small, large)]
        self.assertEqual(direct, [False, True, True, False, False, True])
        self.assertEqual(self.far.got, small + large * 2 + small * 2 + large)
        receiver = self.connection.receiver
        assert isinstance(receiver, Splice)
        self.assertEqual(receiver.forwarded, len(self.far.got))

    def test_freed(self) -> None:
        """At the end, nothing refers to the splice, in either direction; no collector is needed."""
        gc.disable()
        self.addCleanup(gc.enable)
        for piece in (b"small", bytes(1 << 15)):
            self.setUp()
            self.pass_on(piece)
            before = living(Splice)
            self.connection.abort()
            self.assertEqual(living(Splice), before - 2)

    def test_lost_under_it(self) -> None:
        """A sink that goes while a large piece is sent takes the source along; nothing is leased from it."""
        source, sink = FakePipe(), _Breaking()
        join(source, sink)
        splice = source.receiver
        source.deliver(bytes(1 << 15))
        self.assertTrue(source.aborted)
        assert isinstance(splice, Splice)
        self.assertIsNone(splice.buffer)


class Line:
    """A socket spliced with a channel, whose far end is spliced with another socket.

    :ivar sent: what the test sent on the outer socket of either end, and so on.
    """

    def __init__(self) -> None:
        self.reactor = SocketReactor()
        self.mux = MuxPair()
        self.outer: list[socket.socket] = []
        for channel in self.mux.open(Recorder(), Recorder()):
            inside, outside = socket_pair(4096)
            join(Connection(self.reactor, inside), channel)
            self.outer.append(outside)
        self.sent, self.got = [bytearray(), bytearray()], [bytearray(), bytearray()]
        self.finished, self.ended = [False, False], [False, False]

    def send(self, who: bool, size: int) -> None:
        """Send as much as the socket takes."""
        if not self.finished[who]:
            data = bytes([len(self.sent[who]) % 251]) * size
            try:
                self.sent[who] += data[: self.outer[who].send(data)]
            except BlockingIOError:
                pass

    def finish(self, who: bool, size: int = 0) -> None:
        """End one direction."""
        if not self.finished[who]:
            self.finished[who] = True
            self.outer[who].shutdown(socket.SHUT_WR)

    def take(self, who: bool, size: int = 1 << 20) -> bool:
        """Read; return whether there was something."""
        data = None if self.ended[who] else take(self.outer[who], size)
        if data is None:
            return False
        self.got[who] += data
        self.ended[who] = not data
        return True

    def run(self, who: bool, size: int = 0) -> None:
        """Run all events, without reading at the ends."""
        self.reactor.run(self._carry)

    def _carry(self) -> bool:
        wires = self.mux.near.wire, self.mux.far.wire
        busy = any(wire.sent or wire.wants_turn for wire in wires)
        self.mux.pump()
        return busy

    def run_out(self) -> None:
        """Go on until both ends have read everything."""
        self.reactor.run(lambda: any([self._carry(), self.take(who=False), self.take(who=True)]))


class JoinedTests(SynchronousTestCase):
    """Splices, sockets and channels together."""

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.booleans(), st.sampled_from((Line.send, Line.send, Line.take, Line.finish, Line.run))
            ),
            max_size=25,
        ),
        st.sampled_from((1, 1000, 300_000)),
    )
    def test_any_order(self, script: list[tuple[bool, Callable[..., object]]], size: int) -> None:
        """All bytes and both ends arrive, whatever the order; at the end nothing is left."""
        line = Line()
        for outer in line.outer:
            self.addCleanup(outer.close)
        for who, action in script:
            action(line, who, size)
        line.finish(who=False)
        line.finish(who=True)
        line.run_out()
        self.assertEqual(line.got, line.sent[::-1])
        self.assertEqual(line.ended, [True, True])
        reactor, mux = line.reactor, line.mux
        self.assertEqual((reactor.readers, reactor.writers, reactor.getDelayedCalls()), ([], [], []))
        self.assertEqual((mux.near.mux.channels, mux.far.mux.channels), ({}, {}))
