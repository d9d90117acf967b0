"""Tests of a port that runs out of descriptors; `tests.integration.test_connecting` has the others."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable
from typing import Any, cast

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.receivers import Recorder
from tests.fakes.sockets import SocketReactor, socket_pair, take
from tower.net.connection import Connection
from tower.net.connection_slots import REMINDER, Slots
from tower.net.lingering_close import LINGER
from tower.net.listening import PAUSE, Admission, ConnectionFactory, Port
from tower.net.load_balancers import Balancers, read_networks
from tower.net.pipes import Receiver
from tower.reactor.process import RESERVE

GONE = ("192.0.2.1", 1234)


class Listener:
    """Fake of a listening socket: its waiting connections, and errors of accept.

    :ivar waiting: connected sockets, or errors.
    """

    def __init__(self) -> None:
        self.waiting: list[socket.socket | OSError] = []
        self._file = os.open("/dev/null", os.O_RDONLY)

    def fileno(self) -> int:
        """See socket."""
        return self._file

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """See socket."""
        if not self.waiting:
            raise BlockingIOError
        first = self.waiting.pop(0)
        if isinstance(first, OSError):
            raise first
        return first, GONE

    def shutdown(self, how: int) -> None:
        """See socket."""

    def close(self) -> None:
        """See socket."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class PortTestCase(SynchronousTestCase):
    """A test with a port."""

    def admission(self) -> Admission | None:
        """Return what the port shares with others."""
        return None

    def setUp(self) -> None:
        """Make a started port."""
        self.reactor = SocketReactor()
        self.taken: list[Connection] = []
        self.wanted: Callable[[Connection], Receiver | None] = self.take
        factory = ConnectionFactory(self.accept)
        self.port = cast(Any, Port(None, self.admission(), 8443, factory, 50, "", self.reactor))
        self.listener: Any = Listener()
        self.addCleanup(self.listener.close)
        self.port.socket, self.port.fileno = self.listener, self.listener.fileno
        self.port.startReading()
        self.port.connected = True
        self.events = self.enterContext(capturedLogs())
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, self.limits)

    def accept(self, connection: Connection) -> Receiver | None:
        """Do with a connection what the test wants."""
        return self.wanted(connection)

    def limit(self, descriptor: int) -> None:
        """Make *descriptor* the first of the last ones."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor + RESERVE, self.limits[1]))

    def take(self, connection: Connection) -> Receiver:
        """Take a connection."""
        self.taken.append(connection)
        self.addCleanup(connection.abort)
        return Recorder()

    def come(self) -> socket.socket:
        """Connect; return the client's end."""
        near, far = socket_pair()
        self.addCleanup(far.close)
        self.listener.waiting.append(near)
        return far

    @property
    def messages(self) -> list[str]:
        """Return the levels of the port's log lines."""
        own = [each for each in self.events if each["log_namespace"] == "tower.net.listening.Port"]
        return [each["log_level"].name for each in own]

    def listening(self) -> bool:
        """Return whether the port is called for a new connection."""
        return self.port in self.reactor.readers


class PortTests(PortTestCase):
    """A connection waits while no descriptor is free."""

    def test_takes_all(self) -> None:
        """All waiting connections are accepted; closed ones are skipped."""
        self.come()
        self.listener.waiting.append(OSError(errno.ECONNABORTED, "gone"))
        self.come()
        self.port.doRead()
        self.assertEqual((len(self.taken), self.listening(), self.messages), (2, True, []))

    def test_exhausted(self) -> None:
        """Without a descriptor, the port accepts nothing for a while, and logs it, and the end of it."""
        self.listener.waiting.append(OSError(errno.EMFILE, "too many"))
        self.come()
        self.port.doRead()
        self.assertEqual((len(self.taken), self.listening(), self.messages), (0, False, ["warn"]))
        self.reactor.advance(PAUSE)
        self.assertTrue(self.listening())
        self.port.doRead()
        self.assertEqual((len(self.taken), self.messages), (1, ["warn", "info"]))

    def test_said_once(self) -> None:
        """It is logged once a minute, however often it occurs."""
        for _ in range(int(REMINDER / PAUSE)):
            self.listener.waiting.append(OSError(errno.ENFILE, "too many"))
            self.port.doRead()
            self.port.doRead()
            self.reactor.advance(PAUSE)
        self.assertEqual(self.messages, ["warn", "info"])
        self.listener.waiting.append(OSError(errno.ENFILE, "too many"))
        self.port.doRead()
        self.assertEqual(self.messages, ["warn", "info", "warn"])
        self.reactor.advance(PAUSE)

    def test_reserve(self) -> None:
        """Connections do not use the last descriptors: the port stops before, until others are free."""
        self.come()
        self.come()
        self.limit(self.listener.waiting[0].fileno())
        self.port.doRead()
        self.assertEqual((len(self.taken), self.listening(), self.messages), (1, False, ["warn"]))
        self.reactor.advance(PAUSE)
        self.assertFalse(self.listening())
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
        self.reactor.advance(PAUSE)
        self.assertTrue(self.listening())
        self.port.doRead()
        self.assertEqual(len(self.taken), 2)

    def test_not_wanted(self) -> None:
        """Rejected connections are aborted."""
        self.wanted = lambda connection: None
        self.come()
        near = self.listener.waiting[0]
        self.port.doRead()
        self.assertEqual(near.fileno(), -1)

    def test_error(self) -> None:
        """An error about one connection is logged, and others come."""

        def fail(connection: Connection) -> Receiver:
            raise ZeroDivisionError

        self.wanted = fail
        self.come()
        self.port.doRead()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.wanted = self.take
        self.come()
        self.port.doRead()
        self.assertEqual(len(self.taken), 1)

    def test_stopped(self) -> None:
        """A port that is stopped while it pauses leaves no call behind."""
        self.listener.waiting.append(OSError(errno.EMFILE, "too many"))
        self.port.doRead()
        self.port.stopListening()
        self.reactor.advance(0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class SlotsTests(PortTestCase):
    """With slots, the oldest connection that has proven nothing goes."""

    def admission(self) -> Admission:
        """Share slots for three."""
        self.slots = Slots(self.reactor, 3)
        return Admission(self.slots, Balancers(self.reactor))

    def open(self) -> list[bool]:
        """Return, for each accepted connection, whether it is open."""
        return [each.fileno() >= 0 for each in self.taken]

    def test_count(self) -> None:
        """It is reset for a new one if all slots are used, on any port."""
        first = self.come()
        for _ in range(4):
            self.come()
        self.port.doRead()
        self.assertEqual(self.open(), [False, False, True, True, True])
        self.assertEqual(take(first), b"")
        self.assertEqual((self.slots.unproven, self.slots.ended), (3, 2))

    def test_all_proven(self) -> None:
        """If all are proven, only the new connection is reset."""
        for _ in range(3):
            self.come()
        self.port.doRead()
        for each in self.taken:
            assert each.slot is not None
            each.slot.prove()
        newcomer = self.come()
        self.port.doRead()
        self.assertEqual(self.open(), [True, True, True])
        self.assertEqual((take(newcomer), self.slots.refused), (b"", 1))
        self.taken[1].abort()
        self.come()
        self.port.doRead()
        self.assertEqual(self.open(), [True, False, True, True])

    def test_descriptors(self) -> None:
        """When descriptors are scarce, two are closed for each new connection; none waits."""
        for _ in range(3):
            self.come()
        self.port.doRead()
        self.come()
        self.limit(self.listener.waiting[0].fileno())
        self.port.doRead()
        self.assertEqual(
            (self.open(), self.listening(), self.messages), ([False, False, True, True], True, [])
        )

    def test_none_left(self) -> None:
        """The same holds if the system returns no descriptor at all."""
        self.come()
        self.port.doRead()
        self.listener.waiting.append(OSError(errno.EMFILE, "too many"))
        self.come()
        self.port.doRead()
        self.assertEqual((self.open(), self.listening(), self.messages), ([False, True], True, []))

    def test_scarce_and_proven(self) -> None:
        """When descriptors are scarce and all others proven, one new connection at a time may try."""
        self.come()
        self.port.doRead()
        assert self.taken[0].slot is not None
        self.taken[0].slot.prove()
        self.come()
        self.limit(self.listener.waiting[0].fileno())
        self.port.doRead()
        self.assertEqual((self.open(), self.listening(), self.messages), ([True, True], False, ["warn"]))
        self.reactor.advance(PAUSE)
        self.assertTrue(self.listening())
        assert self.taken[1].slot is not None
        self.come()
        self.taken[1].slot.prove()
        self.port.doRead()
        self.assertEqual((self.open(), self.listening()), ([True, True, True], False))
        assert self.taken[2].slot is not None
        self.taken[2].slot.prove()
        self.reactor.advance(PAUSE)
        self.assertFalse(self.listening())
        self.port.stopListening()

    def test_lingering(self) -> None:
        """The slot of a closed connection is free once its socket is, or when it is needed."""
        self.come()
        self.port.doRead()
        self.taken[0].close()
        self.assertTrue(self.slots.evict())
        self.assertEqual((self.slots.unproven, self.reactor.getDelayedCalls()), (0, []))
        self.come()
        self.port.doRead()
        self.taken[1].close()
        self.reactor.advance(LINGER)
        self.assertFalse(self.slots.evict())
        self.assertEqual((self.slots.unproven, self.slots.ended), (0, 0))

    def test_not_wanted(self) -> None:
        """A rejected connection has no slot."""
        self.wanted = lambda connection: None
        self.come()
        self.port.doRead()
        self.assertEqual((self.slots.unproven, self.slots.ended), (0, 0))


class BalancedTests(PortTestCase):
    """Some connections come from load balancers."""

    def admission(self) -> Admission:
        """Trust the address of every client."""
        self.slots = Slots(self.reactor, 10, 2)
        self.balancers = Balancers(self.reactor, read_networks(GONE[0]))
        return Admission(self.slots, self.balancers)

    def turn(self) -> None:
        """Deliver the sent bytes."""
        for _ in range(3):  # the header, what is behind it, and nothing
            self.reactor.run_once()

    def test_address(self) -> None:
        """A connection has the address in the header, and receives the bytes after it."""
        far = self.come()
        self.port.doRead()
        self.assertEqual((self.taken, self.slots.unproven), ([], 1))
        far.send(b"PROXY TCP6 2001:db8::7 ::1 4711 8443\r\nhello")
        self.turn()
        (connection,) = self.taken
        peer = connection.getPeer()
        self.assertEqual((peer.host, peer.port), ("2001:db8::7", 4711))
        receiver = cast(Recorder, connection.receiver)
        self.assertEqual(bytes(receiver.got), b"hello")

    def test_own(self) -> None:
        """A balancer's own connection has the address that it comes from."""
        far = self.come()
        self.port.doRead()
        far.send(b"PROXY UNKNOWN\r\n")
        self.turn()
        self.assertEqual(self.taken[0].getPeer().host, "0.0.0.0")  # a socket pair has none

    def test_share(self) -> None:
        """Connections count for the address in the header, and for none before it."""
        ends = [self.come() for _ in range(4)]
        self.port.doRead()
        self.assertEqual(self.slots.ended, 0)
        for number, far in enumerate(ends):
            far.send(b"PROXY TCP4 192.0.2.%d 10.0.0.1 4711 8443\r\n" % (number == 0))
            self.turn()
        self.assertEqual([each.fileno() >= 0 for each in self.taken], [True, False, True, True])

    def test_malformed(self) -> None:
        """Without a header a connection is reset, and that is counted."""
        far = self.come()
        self.port.doRead()
        far.send(b"GET / HTTP/1.1\r\n\r\n")
        self.turn()
        self.assertEqual((self.taken, self.slots.unproven, self.balancers.failures), ([], 0, 1))

    def test_stopped(self) -> None:
        """A port that stops closes waiting connections."""
        self.come()
        self.port.doRead()
        self.port.stopListening()
        self.reactor.advance(0)
        self.assertEqual((self.slots.unproven, self.reactor.getDelayedCalls()), (0, []))
