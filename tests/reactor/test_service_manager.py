"""Notifications to the service manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.application.service import MultiService
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.interfaces import IReactor
from tower.reactor.service_manager import STATUS_LIMIT, Manager, Notifications, notify_manager
from tower.reactor.signals import Reloads


class ClockWithTriggers(Clock):
    """A clock that keeps the triggers of the reactor's end."""

    def __init__(self) -> None:
        super().__init__()
        self.triggers: list[Callable[[], object]] = []

    def addSystemEventTrigger(self, phase: str, event: str, call: Callable[[], object]) -> None:
        """Keep *call*."""
        assert (phase, event) == ("before", "shutdown")
        self.triggers.append(call)


class ManagerTests(SynchronousTestCase):
    """The variables of a service manager."""

    def found(self, **environ: str) -> Manager | None:
        """Return the manager that the variables name; they must be removed."""
        environ["HOME"] = "/"
        manager = Manager.of(environ, 7)
        self.assertEqual(environ, {"HOME": "/"})
        return manager

    def test_address(self) -> None:
        """A path and an abstract address are used; without the variable, or with another one, nothing is."""
        self.assertEqual(self.found(NOTIFY_SOCKET="/run/notify"), Manager("/run/notify"))
        self.assertEqual(self.found(NOTIFY_SOCKET="@a@b"), Manager("\0a@b"))
        for text in ("", "vsock:2:1", "run/notify"):
            self.assertIsNone(self.found(NOTIFY_SOCKET=text, WATCHDOG_USEC="1"))
        self.assertIsNone(self.found())

    def test_watchdog(self) -> None:
        """The watchdog is for the process that it names, or for any."""
        for expected, pid, period in (
            (0.5, "7", "500000"),
            (0.5, "", "500000"),
            (0.0, "8", "500000"),
            (0.0, "7", "soon"),
            (0.0, "7", "-1"),
            (0.0, "7", ""),
        ):
            manager = self.found(NOTIFY_SOCKET="@x", WATCHDOG_PID=pid, WATCHDOG_USEC=period)
            self.assertEqual(manager, Manager("\0x", expected), (pid, period))


class NotificationsTests(SynchronousTestCase):
    """The states of a program with a watchdog of 30 s."""

    watchdog = 30.0

    def setUp(self) -> None:
        """Start the service; the program does not serve yet."""
        self.clock = ClockWithTriggers()
        self.sent: list[str] = []
        self.failure: OSError | None = None
        self.status = "0 of 2 clusters available"
        self.service = Notifications(
            cast(IReactor, self.clock), self.send, self.watchdog, lambda: self.status, lambda: 5_000_999
        )
        self.service.startService()

    def send(self, data: bytes) -> None:
        """Play the socket."""
        if self.failure is not None:
            raise self.failure
        self.sent.append(data.decode())

    def taken(self) -> list[str]:
        """Return the datagrams since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def stop(self) -> None:
        """Begin to stop, as the reactor does."""
        (trigger,) = self.clock.triggers
        trigger()

    def test_life(self) -> None:
        """READY, signs of life at half of the period, a changed status only, STOPPING, and then silence."""
        self.clock.advance(60)
        self.assertEqual(self.taken(), [])
        self.service.ready()
        self.assertEqual(self.taken(), ["READY=1\nSTATUS=0 of 2 clusters available", "WATCHDOG=1"])
        self.clock.advance(14.9)
        self.assertEqual(self.taken(), [])
        self.clock.advance(0.2)
        self.assertEqual(self.taken(), ["WATCHDOG=1"])
        self.status = "2 of 2 clusters available"
        self.clock.advance(15)
        self.assertEqual(self.taken(), ["WATCHDOG=1", "STATUS=2 of 2 clusters available"])
        self.service.ready()
        self.assertEqual(self.taken(), [])
        self.stop()
        self.status = "0 of 2 clusters available"
        self.clock.advance(15)
        self.stop()
        self.assertEqual(self.taken(), ["STOPPING=1\nSTATUS=stopping", "WATCHDOG=1"])
        self.successResultOf(self.service.stopService())
        self.clock.advance(60)
        self.assertEqual((self.taken(), self.clock.getDelayedCalls()), ([], []))

    def test_reload(self) -> None:
        """A reload begins with the time of CLOCK_MONOTONIC, µs, and ends with READY."""
        self.service.ready()
        self.taken()
        self.service.reloading()
        self.status = "no clusters"
        self.service.reloaded()
        self.assertEqual(self.taken(), ["RELOADING=1\nMONOTONIC_USEC=5000", "READY=1\nSTATUS=no clusters"])

    def test_reload_too_early_or_late(self) -> None:
        """A reload before the program serves or while it stops does not report it as ready."""
        self.service.reloading()
        self.service.reloaded()
        self.assertEqual(self.taken(), [])
        self.stop()
        self.taken()
        self.service.ready()
        self.service.reloading()
        self.service.reloaded()
        self.assertEqual(self.taken(), [])
        self.successResultOf(self.service.stopService())

    def test_status(self) -> None:
        """A status is one short line."""
        self.status = "error\nREADY=1 " + "x" * 999
        self.service.ready()
        status = self.taken()[0].splitlines()[1]
        self.assertTrue(status.startswith(r"STATUS=error\nREADY=1 xx"), status)
        self.assertEqual(len(status), len("STATUS=") + STATUS_LIMIT)

    def test_full(self) -> None:
        """A manager that does not read gets the states later, and the signs of life not twice."""
        self.failure = BlockingIOError()
        self.service.ready()
        for _ in range(20):
            self.service.reloading()
        self.clock.advance(15)
        self.failure = None
        self.clock.advance(15)
        taken = self.taken()
        self.assertEqual((taken[0].splitlines()[0], taken[-1]), ("READY=1", "WATCHDOG=1"))
        self.assertEqual((len(taken), taken.count("WATCHDOG=1")), (9, 1))

    def test_lost(self) -> None:
        """A manager that does not listen is logged once; when it listens, it gets what it missed."""
        with capturedLogs() as events:
            for _ in range(2):
                self.failure = ConnectionRefusedError(111, "Connection refused")
                self.service.ready()
                for _ in range(3):
                    self.clock.advance(15)
                self.failure = None
                self.clock.advance(15)
        self.assertEqual(
            [line.splitlines()[0] for line in self.taken()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
        )
        texts = [str(formatEvent(event)) for event in events]
        self.assertEqual(len(texts), 2, texts)
        for text in texts:
            self.assertIn("cannot notify the service manager: ", text)
            self.assertIn("Connection refused", text)


class UnwatchedTests(SynchronousTestCase):
    """Without a watchdog, or without a manager."""

    def test_no_watchdog(self) -> None:
        """A changed status is sent, but no sign of life."""
        clock = ClockWithTriggers()
        sent: list[bytes] = []
        statuses = iter("abb")
        service = Notifications(cast(IReactor, clock), sent.append, 0.0, lambda: next(statuses))
        service.startService()
        service.ready()
        clock.advance(10)
        self.assertEqual(sent, [b"READY=1\nSTATUS=a", b"STATUS=b"])
        self.successResultOf(service.stopService())

    def test_no_manager(self) -> None:
        """Without NOTIFY_SOCKET nothing is started, and nothing is called."""
        program, reloads = MultiService(), Reloads()
        nothing: Any = None
        ready = notify_manager(program, nothing, reloads, nothing, {"WATCHDOG_USEC": "1"})
        program.startService()
        ready()
        reloads.run()
        self.assertEqual(list(program), [])
