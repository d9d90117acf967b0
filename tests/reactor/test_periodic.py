"""Tests of `tower.reactor.periodic`."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.periodic import periodic


class PeriodicTests(SynchronousTestCase):
    """Timers that survive errors of their bodies."""

    def test_survives(self) -> None:
        """A body that raises, at once or later, is called again, and its failure is logged."""
        clock, calls = Clock(), []

        def body() -> Deferred[None] | None:
            calls.append(clock.seconds())
            if len(calls) == 1:
                raise ZeroDivisionError
            if len(calls) == 2:
                return fail(ZeroDivisionError())
            return None

        timer = periodic(clock, 2.0, body)
        timer.startService()
        clock.pump([2.0, 2.0])
        timer.stopService()
        self.assertEqual(calls, [0.0, 2.0, 4.0])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
