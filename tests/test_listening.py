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

from tests.receivers import Recorder
from tests.sockets import SocketReactor, socket_pair
from tower.connection import Connection
from tower.listening import PAUSE, REMINDER, ConnectionFactory, Port
from tower.pipes import Receiver
from tower.process import RESERVE

GONE = ("192.0.2.1", 1234)


class Listener:
    """In place of a listening socket: who waits, and what happens when somebody is taken.

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


class PortTests(SynchronousTestCase):
    """Who comes when nothing is left waits."""

    def setUp(self) -> None:
        """Have a port that was started."""
        self.reactor = SocketReactor()
        self.taken: list[Connection] = []
        self.wanted: Callable[[Connection], Receiver | None] = self.take
        factory = ConnectionFactory(self.accept)
        self.port = cast(Any, Port(None, None, 8443, factory, 50, "", self.reactor))
        self.listener: Any = Listener()
        self.addCleanup(self.listener.close)
        self.port.socket, self.port.fileno = self.listener, self.listener.fileno
        self.port.startReading()
        self.port.connected = True
        self.events = self.enterContext(capturedLogs())

    def accept(self, connection: Connection) -> Receiver | None:
        """Do with a connection what the test wants."""
        return self.wanted(connection)

    def take(self, connection: Connection) -> Receiver:
        """Take a connection."""
        self.taken.append(connection)
        self.addCleanup(connection.abort)
        return Recorder()

    def come(self) -> None:
        """Have somebody connect."""
        near, far = socket_pair()
        self.addCleanup(far.close)
        self.listener.waiting.append(near)

    @property
    def messages(self) -> list[str]:
        """How bad what the port said was."""
        own = [each for each in self.events if each["log_namespace"] == "tower.listening.Port"]
        return [each["log_level"].name for each in own]

    def listening(self) -> bool:
        """Say whether the port is called when somebody comes."""
        return self.port in self.reactor.readers

    def test_takes_all(self) -> None:
        """Everybody who waits is taken; who went away before is passed over."""
        self.come()
        self.listener.waiting.append(OSError(errno.ECONNABORTED, "gone"))
        self.come()
        self.port.doRead()
        self.assertEqual((len(self.taken), self.listening(), self.messages), (2, True, []))

    def test_exhausted(self) -> None:
        """Without a descriptor it takes nobody for a while, says so, and says when it does again."""
        self.listener.waiting.append(OSError(errno.EMFILE, "too many"))
        self.come()
        self.port.doRead()
        self.assertEqual((len(self.taken), self.listening(), self.messages), (0, False, ["warn"]))
        self.reactor.advance(PAUSE)
        self.assertTrue(self.listening())
        self.port.doRead()
        self.assertEqual((len(self.taken), self.messages), (1, ["warn", "info"]))

    def test_said_once(self) -> None:
        """However often that happens, it is said once a minute."""
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
        """The last descriptors are not for connections: it stops before, and until there are others."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        self.come()
        self.come()
        limit = self.listener.waiting[0].fileno() + RESERVE
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        self.port.doRead()
        self.assertEqual((len(self.taken), self.listening(), self.messages), (1, False, ["warn"]))
        self.reactor.advance(PAUSE)
        self.assertFalse(self.listening())
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        self.reactor.advance(PAUSE)
        self.assertTrue(self.listening())
        self.port.doRead()
        self.assertEqual(len(self.taken), 2)

    def test_not_wanted(self) -> None:
        """Whoever is not wanted is cut off."""
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
