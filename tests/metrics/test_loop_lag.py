"""Tests of `tower.metrics.loop_lag`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.metrics.loop_lag import LAG, PERIOD, LoopLag
from tower.metrics.page import registry_of


class LoopLagTests(SynchronousTestCase):
    """The delay of timers."""

    def setUp(self) -> None:
        """Start to measure."""
        self.clock = Clock()
        self.lag = LoopLag(self.clock)
        self.lag.startService()
        self.registry = registry_of(self.lag)

    def value(self, suffix: str, **labels: str) -> float | None:
        """Return a sample."""
        return self.registry.get_sample_value(f"{LAG}_{suffix}", labels)

    def test_in_time(self) -> None:
        """Timers in time count in the first bucket."""
        for _ in range(4):
            self.clock.advance(PERIOD)
        self.assertEqual(self.value("bucket", le="0.001"), 4)
        self.assertEqual(self.value("sum"), 0)

    def test_late(self) -> None:
        """A late timer counts with its delay."""
        self.clock.advance(PERIOD + 0.7)
        self.assertEqual(self.value("bucket", le="0.2"), 0)
        self.assertEqual(self.value("bucket", le="1.0"), 1)
        self.assertAlmostEqual(self.value("sum") or 0, 0.7)

    def test_stop(self) -> None:
        """A stop leaves no timer, and can be repeated."""
        self.lag.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.lag.stopService()
