"""Tests of `tower.control.grace`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.control.grace import GracePeriods


class GracePeriodsTests(SynchronousTestCase):
    """States that last, and states that end."""

    def setUp(self) -> None:
        """Periods of 10 s."""
        self.clock = Clock()
        self.ended: list[str] = []
        self.periods = GracePeriods(self.clock, 10.0, self.ended.append)

    def test_lasts(self) -> None:
        """A state counts after the period, until it ends."""
        self.assertFalse(self.periods.lasts("alpha", True))
        self.clock.advance(9)
        self.assertFalse(self.periods.lasts("alpha", True))
        self.clock.advance(1)
        self.assertEqual(self.ended, ["alpha"])
        self.assertTrue(self.periods.lasts("alpha", True))
        self.assertFalse(self.periods.lasts("beta", True))
        self.assertFalse(self.periods.lasts("alpha", False))
        self.assertFalse(self.periods.lasts("alpha", True))
        self.periods.stop()

    def test_interrupted(self) -> None:
        """A state that ends and comes back starts a new period."""
        self.periods.lasts("alpha", True)
        self.clock.advance(9)
        self.periods.lasts("alpha", False)
        self.periods.lasts("alpha", True)
        self.clock.advance(9)
        self.assertEqual(self.ended, [])
        self.clock.advance(1)
        self.assertEqual(self.ended, ["alpha"])

    def test_at_once(self) -> None:
        """A period can end before its time, without a call."""
        self.periods.lasts("alpha", True)
        self.assertTrue(self.periods.lasts("alpha", True, at_once=True))
        self.clock.advance(60)
        self.assertEqual(self.ended, [])
        self.assertTrue(self.periods.lasts("alpha", True))
        self.assertFalse(self.periods.lasts("alpha", False, at_once=True))
        self.assertFalse(self.periods.lasts("alpha", True))
        self.periods.stop()

    def test_stop(self) -> None:
        """Nothing is left after a stop."""
        self.periods.lasts("alpha", True)
        self.clock.advance(10)
        self.periods.lasts("beta", True)
        self.periods.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertFalse(self.periods.lasts("alpha", True))
        self.periods.forget("alpha")
        self.assertEqual(self.clock.getDelayedCalls(), [])
