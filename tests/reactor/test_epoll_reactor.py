"""Twisted's epoll reactor with a poller in it."""

from __future__ import annotations

import socket
from collections.abc import Callable

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IReactorFDSet
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.fakes.sockets import socket_pair
from tower.reactor.epoll_reactor import TowerReactor
from tower.reactor.poller import GATHERED, TURNS, Poller

LONG = 60.0  # s; for iterations that must not wait


class Reader:
    """Receives bytes, then calls a function of the test."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.far = far
        self._near = near
        self.calls = 0
        self.then: Callable[[], object] = lambda: None
        self.lost: Failure | None = None

    def fileno(self) -> int:
        """See IFileDescriptor."""
        return self._near.fileno()

    def logPrefix(self) -> str:
        """See ILoggingContext."""
        return "reader"

    def doRead(self) -> None:
        """See IReadDescriptor."""
        self.calls += 1
        self._near.recv(100)
        self.then()

    def connectionLost(self, reason: Failure) -> None:
        """See IFileDescriptor."""
        self.lost = reason


class TowerReactorTests(SynchronousTestCase):
    """A reactor that is not started, a poller with a reader in it, and a reader of the reactor's own."""

    def setUp(self) -> None:
        """Make them."""
        self.sockets: list[socket.socket] = []
        self.reactor = TowerReactor()
        self.addCleanup(self.close)
        self.poller = Poller(self.reactor)  # type: ignore[arg-type]
        self.ours, self.twisted = self.reader(), self.reader()
        self.poller.addReader(self.ours)
        self.reactor.addReader(self.twisted)

    def close(self) -> None:
        """Close what a reactor never closes."""
        self.reactor.disconnectAll()
        for waker in list(self.reactor._internalReaders):
            self.reactor.removeReader(waker)
            waker.connectionLost(Failure(ConnectionLost()))
        self.reactor._poller.close()
        for each in self.sockets:
            each.close()

    def reader(self) -> Reader:
        """Return a reader on a new pair of sockets."""
        near, far = socket_pair()
        self.sockets += near, far
        return Reader(near, far)

    def test_interface(self) -> None:
        """The reactor is one for descriptors, as Twisted's is."""
        verifyObject(IReactorFDSet, self.reactor)

    def test_one_iteration(self) -> None:
        """One iteration calls the poller's sockets and the reactor's own descriptors."""
        self.ours.far.send(b"x")
        self.twisted.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual((self.ours.calls, self.twisted.calls), (1, 1))

    def test_stays(self) -> None:
        """While packets arrive, the poller neither polls Twisted's epoll nor returns to the main loop."""
        self.patch(self.reactor._others, "_poll", lambda: self.fail("Twisted's epoll is polled"))

        def again() -> None:
            if self.ours.calls < 5:
                self.ours.far.send(b"x")
            else:
                self.poller.interrupt()

        self.ours.then = again
        self.ours.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual(self.ours.calls, 5)

    def leaves(self, cause: Callable[[], object]) -> None:
        """Check that the iteration ends with the turn in which *cause* was called."""

        def flood() -> None:
            self.ours.far.send(b"x")
            if self.ours.calls == 3:
                cause()

        self.ours.then = flood
        self.ours.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual(self.ours.calls, 3)

    def test_new_timer(self) -> None:
        """A new timer is seen before the next wait."""
        self.leaves(lambda: self.reactor.callLater(0, lambda: None))

    def test_earlier_timer(self) -> None:
        """A timer that becomes due earlier is seen before the next wait."""
        timer = self.reactor.callLater(LONG, lambda: None)
        self.leaves(lambda: timer.reset(0))
        timer.cancel()

    def test_due_timer(self) -> None:
        """Timers run when they are due, however many packets arrive."""
        now = [0.0]
        self.poller.seconds = lambda: now[0]

        def flood() -> None:
            now[0] += 0.5
            self.ours.far.send(b"x")

        self.ours.then = flood
        self.ours.far.send(b"x")
        self.reactor.doIteration(2.0)
        self.assertEqual(self.ours.calls, 4)

    def test_stop(self) -> None:
        """The main loop sees a crash at once."""
        self.leaves(self.reactor.crash)

    def test_returns(self) -> None:
        """The main loop gets its turn after a number of turns."""
        self.ours.then = lambda: self.ours.far.send(b"x")
        self.ours.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual(self.ours.calls, TURNS)

    def test_thread(self) -> None:
        """A call from a thread wakes the reactor."""
        done: list[str] = []
        self.reactor.callFromThread(done.append, "called")
        self.reactor.doIteration(LONG)
        self.reactor.runUntilCurrent()
        self.assertEqual(done, ["called"])

    def test_bounded(self) -> None:
        """However many sockets stay ready, a turn ends after some of them, so that timers run."""
        readers = [self.ours, self.reader()]
        self.poller.addReader(readers[1])

        def flood() -> None:
            self.poller.soon(self.poller.interrupt)
            for each in readers:
                each.far.send(b"x")

        self.ours.then = readers[1].then = flood
        flood()
        self.reactor.doIteration(LONG)
        calls = sum(each.calls for each in readers)
        self.assertGreaterEqual(calls, GATHERED)
        self.assertLess(calls, GATHERED + 3)

    def test_end_of_turn(self) -> None:
        """`Poller.soon` calls at the end of the iteration, for sockets and for the reactor's descriptors."""
        order: list[str] = []
        self.ours.then = self.twisted.then = lambda: self.poller.soon(lambda: order.append("end"))
        self.ours.far.send(b"x")
        self.twisted.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual(order, ["end", "end"])

    def test_end_of_no_turn(self) -> None:
        """`Poller.soon` in a timer calls in the same iteration of the reactor, which does not wait."""
        done: list[str] = []
        self.poller.soon(lambda: done.append("called"))
        self.poller.soon(self.poller.interrupt)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.reactor.doIteration(LONG)
        self.assertEqual(done, ["called"])

    def test_last_socket(self) -> None:
        """A poller without sockets leaves the reactor; its scheduled calls are made."""
        done: list[str] = []
        self.poller.soon(lambda: done.append("called"))
        self.poller.removeReader(self.ours)
        self.assertNotIn(self.poller, self.reactor.getReaders())
        self.twisted.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.reactor.runUntilCurrent()
        self.assertEqual((self.twisted.calls, done), (1, ["called"]))

    def test_last_call(self) -> None:
        """A call that is scheduled at the end of the last socket's turn is made."""
        done: list[str] = []

        def leave() -> None:
            self.poller.removeReader(self.ours)
            self.poller.soon(lambda: self.poller.soon(lambda: done.append("called")))

        self.ours.then = leave
        self.ours.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.reactor.runUntilCurrent()
        self.assertEqual(done, ["called"])

    def test_last_socket_in_turn(self) -> None:
        """A poller may leave the reactor, and come back, while the reactor's descriptors are ready."""

        def replace() -> None:
            self.poller.removeReader(self.ours)
            self.poller.addReader(self.ours)

        self.ours.then = replace
        self.ours.far.send(b"x")
        self.twisted.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.reactor.doIteration(0)
        self.assertEqual((self.ours.calls, self.twisted.calls), (1, 1))

    def test_second_poller(self) -> None:
        """Another poller is a descriptor of the reactor."""
        second, reader = Poller(self.reactor), self.reader()  # type: ignore[arg-type]
        second.addReader(reader)
        reader.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual(reader.calls, 1)

    def test_readers(self) -> None:
        """The poller is a reader of the reactor; the reactor's descriptors are not readers of the poller."""
        self.assertIn(self.poller, self.reactor.getReaders())
        self.assertEqual(self.poller.getReaders(), [self.ours])

    def test_shutdown(self) -> None:
        """A reactor that stops disconnects the poller's sockets, and continues without it."""
        self.reactor.disconnectAll()
        self.assertIsInstance(self.ours.lost and self.ours.lost.value, ConnectionLost)
        self.assertNotIn(self.poller, self.reactor.getReaders())
        self.reactor.addReader(self.twisted)
        self.twisted.far.send(b"x")
        self.reactor.doIteration(LONG)
        self.assertEqual(self.twisted.calls, 1)

    def test_failure(self) -> None:
        """A failed wait for the reactor's descriptors is logged, and the next follows."""
        epoll = self.reactor._poller
        self.twisted.far.send(b"x")
        self.patch(self.reactor, "_poller", None)
        self.reactor.doIteration(LONG)
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.reactor._poller = epoll
        self.reactor.doIteration(LONG)
        self.assertEqual(self.twisted.calls, 1)
