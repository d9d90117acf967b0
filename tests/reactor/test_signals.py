"""Signals of a program."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.reactor.signals import Reloads, Signals


class FakeReactor:
    """A reactor that runs calls of threads at once, and keeps calls for its start."""

    def __init__(self) -> None:
        self.at_start: list[Callable[[], object]] = []
        self.stops = 0

    def callFromThread(self, call: Callable[[], object]) -> None:
        """Run *call*."""
        call()

    def callWhenRunning(self, call: Callable[[], object]) -> None:
        """Keep *call*."""
        self.at_start.append(call)

    def stop(self) -> None:
        """Count."""
        self.stops += 1


class SignalsTests(SynchronousTestCase):
    """Handlers of a program's signals."""

    def setUp(self) -> None:
        """Start the service in a running reactor with its own handlers."""
        self.reactor = FakeReactor()
        self.handlers: dict[int, Any] = {}
        self.seen: list[Any] = []
        reloads = Reloads()
        reloads.add("log", lambda: self.seen.append("reload"))
        self.signals = Signals(
            cast(IReactorFromThreads, self.reactor),
            reloads,
            lambda: self.seen.append("flush"),
            self.set_handler,
            self.seen.append,
        )
        self.signals.startService()
        self.assertEqual(list(self.handlers), [signal.SIGHUP])
        self.handlers[signal.SIGTERM] = lambda *_: self.seen.append("twisted stops")
        self.handlers[signal.SIGINT] = signal.SIG_IGN
        for call in self.reactor.at_start:
            call()

    def set_handler(self, number: int, handler: Any) -> Any:
        """Play `signal.signal`."""
        before = self.handlers.get(number)
        self.handlers[number] = handler
        return before

    def send(self, number: signal.Signals) -> None:
        """Deliver a signal."""
        self.handlers[number](number, None)

    def test_reload(self) -> None:
        """SIGHUP reloads; it neither reloads nor ends a program that is stopping."""
        self.send(signal.SIGHUP)
        self.assertEqual(self.seen, ["reload"])
        self.signals.stopService()
        self.send(signal.SIGHUP)
        self.assertEqual(self.seen, ["reload"])

    def test_stop(self) -> None:
        """The first SIGTERM is Twisted's, the second ends at once, after the log was written."""
        with capturedLogs() as events:
            self.send(signal.SIGTERM)
            self.assertEqual(self.seen, ["twisted stops"])
            self.send(signal.SIGTERM)
        self.assertEqual(self.seen[1:], ["flush", 143])
        self.assertIn("second SIGTERM", str(formatEvent(events[-1])))

    def test_other_stop(self) -> None:
        """SIGINT stops although it was ignored at the start; either signal may be the second."""
        self.send(signal.SIGINT)
        self.assertEqual((self.reactor.stops, self.seen), (1, []))
        self.send(signal.SIGTERM)
        self.assertEqual(self.seen, ["flush", 143])


class ReloadsTests(SynchronousTestCase):
    """The list of things to reload."""

    def test_errors(self) -> None:
        """An error of one is logged and keeps none of the others from their reload."""

        def wrong() -> None:
            raise ConfigurationError("file x: is damaged")

        def broken() -> None:
            raise ZeroDivisionError

        reloads = Reloads()
        for name, reload in (("one", wrong), ("two", broken), ("three", lambda: "since today")):
            reloads.add(name, reload)
        with capturedLogs() as events:
            reloads.run()
        self.assertEqual(
            [(event["log_level"], formatEvent(event)) for event in events],
            [
                (LogLevel.error, "cannot reload the one: file x: is damaged"),
                (LogLevel.critical, "cannot reload the two"),
                (LogLevel.info, "SIGHUP: reloaded three (since today)"),
            ],
        )
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
