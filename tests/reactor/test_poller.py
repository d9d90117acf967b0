"""Sockets behind one descriptor in the reactor."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IReactorFDSet
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.fakes.sockets import SocketReactor, socket_pair
from tower.reactor.poller import GATHERED, LINGER, Poller


class Descriptor:
    """Records its calls, and does what a test wants then."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.calls: list[str] = []
        self.reads: Callable[[], None] = lambda: None
        self.writes: Callable[[], None] = lambda: None
        self.lost: Failure | None = None

    def fileno(self) -> int:
        """See IFileDescriptor."""
        return self.socket.fileno()

    def logPrefix(self) -> str:
        """See ILoggingContext."""
        return "descriptor"

    def doRead(self) -> None:
        """See IReadDescriptor."""
        self.calls.append("read")
        self.reads()

    def doWrite(self) -> None:
        """See IWriteDescriptor."""
        self.calls.append("write")
        self.writes()

    def connectionLost(self, reason: Failure) -> None:
        """See IFileDescriptor."""
        self.lost = reason


class PollerTests(SynchronousTestCase):
    """One reactor, two pairs of sockets."""

    def setUp(self) -> None:
        """Make a reactor, a poller in it, and two descriptors."""
        self.reactor = SocketReactor()
        self.poller = Poller(self.reactor)
        self.addCleanup(self.poller.connectionLost, Failure(ConnectionLost()))
        pairs = [socket_pair(), socket_pair()]
        for pair in pairs:
            for end in pair:
                self.addCleanup(end.close)
        (near, self.far), (other, self.other_far) = pairs
        self.one, self.two = Descriptor(near), Descriptor(other)
        self.one.reads = lambda: self.take(self.one)
        self.two.reads = lambda: self.take(self.two)

    def take(self, descriptor: Descriptor) -> None:
        """Receive the available bytes."""
        descriptor.socket.recv(100)

    def turn(self) -> bool:
        """Let the reactor make one turn, long after the one before."""
        self.reactor.advance(1)
        return self.reactor.run_once()

    def test_interface(self) -> None:
        """A poller offers what a reactor offers to descriptors."""
        verifyObject(IReactorFDSet, self.poller)

    def test_read(self) -> None:
        """Only a socket with something to read is called."""
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)
        self.far.send(b"x")
        self.turn()
        self.assertEqual((self.one.calls, self.two.calls), (["read"], []))

    def test_write(self) -> None:
        """A socket with room is called until its writer is removed."""
        self.one.writes = lambda: self.poller.removeWriter(self.one)
        self.poller.addWriter(self.one)
        self.turn()
        self.turn()
        self.assertEqual(self.one.calls, ["write"])

    def test_both(self) -> None:
        """Readers and writers are added and removed one by one."""
        self.poller.addReader(self.one)
        self.poller.addWriter(self.one)
        self.assertEqual((self.poller.getReaders(), self.poller.getWriters()), ([self.one], [self.one]))
        self.one.writes = lambda: self.poller.removeWriter(self.one)
        self.far.send(b"x")
        self.turn()
        self.assertEqual(self.one.calls, ["read", "write"])
        self.far.send(b"x")
        self.turn()
        self.assertEqual(self.one.calls, ["read", "write", "read"])

    def test_one_place(self) -> None:
        """The reactor has one reader for all sockets, and none when there are none."""
        self.poller.addReader(self.one)
        self.poller.addReader(self.one)
        self.poller.addWriter(self.two)
        self.assertEqual(self.reactor.readers, [self.poller])
        self.poller.removeReader(self.one)
        self.poller.removeReader(self.one)
        self.poller.removeWriter(self.two)
        self.assertEqual(self.reactor.readers, [])

    def test_broken(self) -> None:
        """A broken socket is readable, or writable, whichever is waited for."""
        self.poller.addReader(self.one)
        self.poller.addWriter(self.two)
        self.two.writes = lambda: self.poller.removeWriter(self.two)
        self.far.close()
        self.other_far.close()
        self.one.reads = lambda: self.poller.removeReader(self.one)
        self.turn()
        self.assertEqual((self.one.calls, self.two.calls), (["read"], ["write"]))

    def test_goes_on(self) -> None:
        """Bytes that come during a call are served in the same iteration of the reactor."""
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)

        def answer() -> None:
            self.take(self.one)
            self.other_far.send(b"x")

        self.one.reads = answer
        self.far.send(b"x")
        self.turn()
        self.assertEqual(self.two.calls, ["read"])

    def test_bounded(self) -> None:
        """However much comes, the reactor gets its turn after a while."""
        self.poller.addReader(self.one)

        def flood() -> None:
            self.reactor.advance(LINGER / 4)
            if len(self.one.calls) > 50:
                raise AssertionError("the reactor starves")

        self.one.reads = flood
        self.far.send(b"x")
        self.turn()
        self.assertLess(len(self.one.calls), 10)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_hurried(self) -> None:
        """A call with delay 0 does not wait until no more bytes come."""
        self.poller.addReader(self.one)
        done: list[int] = []

        def call_at_once() -> None:
            self.poller.callLater(0, done.append, len(self.one.calls))

        self.one.reads = call_at_once
        self.far.send(b"x")
        self.turn()
        self.assertEqual(done, [1])

    def test_end_of_turn(self) -> None:
        """`Poller.soon` calls after all ready sockets, once."""
        order: list[str] = []
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)

        def note(descriptor: Descriptor) -> None:
            self.take(descriptor)
            order.append("read")
            self.poller.soon(lambda: order.append("end"))

        self.one.reads = lambda: note(self.one)
        self.two.reads = lambda: note(self.two)
        self.far.send(b"x")
        self.other_far.send(b"x")
        self.turn()
        self.assertEqual(order, ["read", "read", "end", "end"])

    def test_gathers(self) -> None:
        """While several sockets are ready at once, the end of the iteration is deferred."""
        order: list[str] = []
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)

        def note(descriptor: Descriptor) -> None:
            self.take(descriptor)
            if not order:
                (self.far if descriptor is self.one else self.other_far).send(b"x")
                self.poller.soon(lambda: order.append("end"))
            order.append("read")

        self.one.reads = lambda: note(self.one)
        self.two.reads = lambda: note(self.two)
        self.far.send(b"x")
        self.other_far.send(b"x")
        self.turn()
        self.assertEqual(order, ["read", "read", "read", "end"])

    def test_gathers_no_longer(self) -> None:
        """However much comes, the turn ends after a while."""
        ends: list[int] = []
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)
        self.two.reads = lambda: self.reactor.advance(LINGER / 100)

        def flood() -> None:
            self.poller.soon(lambda: ends.append(len(self.one.calls + self.two.calls)))
            if len(self.one.calls) > 10 * GATHERED:
                raise AssertionError("the turn does not end")

        self.one.reads = flood
        self.far.send(b"x")
        self.other_far.send(b"x")
        self.turn()
        self.assertLessEqual(ends[0], GATHERED)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_lone(self) -> None:
        """A turn is lone if only one socket is ready."""
        lone: list[bool] = []

        def note(descriptor: Descriptor) -> None:
            self.take(descriptor)
            lone.append(self.poller.turn.is_lone)

        for each in (self.one, self.two):
            self.poller.addReader(each)
            each.reads = partial(note, each)
        self.far.send(b"x")
        self.turn()
        self.far.send(b"x")
        self.other_far.send(b"x")
        self.turn()
        self.assertEqual(lone, [True, False, False])

    def test_end_of_no_turn(self) -> None:
        """Outside a turn it calls in the reactor's next, not at once."""
        done: list[str] = []
        self.poller.soon(lambda: done.append("one"))
        self.poller.soon(lambda: done.append("two"))
        self.assertEqual(done, [])
        self.reactor.advance(0)
        self.assertEqual(done, ["one", "two"])
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_end_leads_to_another(self) -> None:
        """A call that asks again at the end of an iteration is made again, and delays no other."""
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)
        calls: list[int] = []

        def again() -> None:
            calls.append(len(self.two.calls))
            if len(calls) < 3:
                self.other_far.send(b"x")
                self.poller.soon(again)

        def begin() -> None:
            self.take(self.one)
            self.poller.soon(again)

        self.one.reads = begin
        self.far.send(b"x")
        self.turn()
        self.assertEqual(calls, [0, 1, 2])

    def test_error(self) -> None:
        """A descriptor that fails is logged and lost; the others go on."""
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)

        def fail() -> None:
            raise ValueError("a mistake")

        self.one.reads = fail
        self.far.send(b"x")
        self.other_far.send(b"x")
        self.turn()
        self.assertIsInstance(self.one.lost and self.one.lost.value, ValueError)
        self.assertEqual(self.two.calls, ["read"])
        self.assertEqual(self.poller.getReaders(), [self.two])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_error_at_the_end(self) -> None:
        """An error at the end of an iteration is logged; the other calls are made."""
        done: list[str] = []

        def fail() -> None:
            raise ValueError("a mistake")

        self.poller.soon(fail)
        self.poller.soon(lambda: done.append("called"))
        self.reactor.advance(0)
        self.assertEqual(done, ["called"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_number_taken_again(self) -> None:
        """An event of a closed socket does not reach a new one with its descriptor number."""
        self.poller.addReader(self.one)
        self.poller.addReader(self.two)
        heirs: list[Descriptor] = []

        def replace(gone: Descriptor) -> None:
            for descriptor in (self.one, self.two):
                self.poller.removeReader(descriptor)
            number = gone.socket.fileno()
            gone.socket.close()
            near, far = socket_pair()
            self.addCleanup(near.close)
            self.addCleanup(far.close)
            heirs.append(Descriptor(near if near.fileno() == number else far))
            self.assertEqual(heirs[0].fileno(), number)
            self.poller.addReader(heirs[0])

        self.one.reads = lambda: replace(self.two)
        self.two.reads = lambda: replace(self.one)
        self.far.send(b"x")
        self.other_far.send(b"x")
        self.turn()
        self.assertEqual(len(heirs), 1)
        self.assertEqual(heirs[0].calls, [])

    def test_shutdown(self) -> None:
        """When the reactor drops the poller, all descriptors are notified and removed."""
        self.poller.addReader(self.one)
        self.poller.addWriter(self.one)
        self.poller.addWriter(self.two)
        self.poller.connectionLost(Failure(ConnectionLost()))
        for descriptor in (self.one, self.two):
            self.assertIsInstance(descriptor.lost and descriptor.lost.value, ConnectionLost)
        self.assertEqual(self.reactor.readers, [])
