"""Tests of tower.conch.timers."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.timers import Timers


class TimersTests(SynchronousTestCase):
    """Timers."""

    def test_life(self) -> None:
        """A call comes once, is replaced by one of its name, and can set itself again."""
        clock = Clock()
        timers = Timers(clock)
        called: list[str] = []

        def again() -> None:
            called.append("again")
            timers.set("a", 1.0, lambda: called.append("last"))

        timers.set("a", 1.0, lambda: called.append("never"))
        timers.set("a", 2.0, again)
        timers.set("b", 5.0, lambda: called.append("never"))
        clock.pump([1.0] * 3)
        self.assertEqual(called, ["again", "last"])
        timers.cancel("a")
        timers.cancel_all()
        timers.cancel_all()
        self.assertEqual((clock.getDelayedCalls(), called), ([], ["again", "last"]))
