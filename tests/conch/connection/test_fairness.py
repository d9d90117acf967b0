"""Tests of `tower.conch.connection.fairness`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.connection.fairness import LEAST, MIXED, SHARED_FOR, SHARED_PACKET, BusyChannels, Fairness
from tower.conch.connection.messages import ALWAYS_FITS, LONGEST_DATA
from tower.conch.connection.window import ALONE, SHARED, Window
from tower.conch.tunnel.outlet import Outlet
from tower.net.budget import Budget

ROUND_TRIP = 0.1


class Wire(Outlet):
    """As much of a tunnel's as is needed."""

    def __init__(self) -> None:
        pass

    @property
    def round_trip(self) -> float:
        """See `tower.conch.tunnel.outlet.Outlet`."""
        return ROUND_TRIP


class BusyChannelsTests(SynchronousTestCase):
    """Counts busy channels and returns their limits."""

    def setUp(self) -> None:
        """Start without busy channels."""
        self.company = BusyChannels()
        self.windows = [Window(Budget(0)) for _ in range(100)]
        self.now = 1000.0

    def shares(self, count: int) -> list[int]:
        """Renew the first *count* windows at once, some time later; return the limit of each."""
        self.now += 0.3
        return [self.company.share(window, self.now) for window in self.windows[:count]]

    def test_parts(self) -> None:
        """From the second time on, all of them together have as much as there is, and no more."""
        self.shares(16)
        self.assertEqual(self.shares(16), [MIXED // 16] * 16)

    def test_bounds(self) -> None:
        """A few have no more than others that are not alone, many not less than is worth a message."""
        self.shares(100)
        self.assertEqual(self.shares(100)[-1], LEAST)
        self.shares(2)
        self.assertEqual(self.shares(2), [SHARED] * 2)

    def test_again_and_again(self) -> None:
        """However often one is renewed, it counts once."""
        self.shares(1)
        for _ in range(50):
            self.assertEqual(self.company.share(self.windows[0], self.now), SHARED)

    def test_gone(self) -> None:
        """A busy channel counts until the end of the next period, and not after a pause."""
        self.shares(32)
        self.assertEqual(self.shares(1), [MIXED // 32])
        self.assertEqual(self.shares(1), [SHARED])
        self.shares(32)
        self.now += 10
        self.assertEqual(self.shares(1), [SHARED])


class FairnessTests(SynchronousTestCase):
    """Detects active channels."""

    def setUp(self) -> None:
        """Start without active channels."""
        self.fairness = Fairness(Wire())
        self.window = Window(Budget(0))
        self.now = 1000.0

    def near(self) -> int:
        """Return what is enough near by, now."""
        return self.fairness.window_limit(self.window, self.now)

    def test_alone(self) -> None:
        """A channel that is alone never counts as shared."""
        for size in (1, LONGEST_DATA):
            self.fairness.record("one", size)
            self.fairness.last_active = None
        self.assertEqual((self.near(), self.fairness.largest), (ALONE, LONGEST_DATA))

    def test_bulk(self) -> None:
        """Bulk of two keeps large packets and smaller windows, for a while after the last change."""
        for channel in ("one", "two"):
            self.fairness.record(channel, LONGEST_DATA)
        self.assertEqual((self.near(), self.fairness.largest), (SHARED, LONGEST_DATA))
        self.now += SHARED_FOR + ROUND_TRIP - 0.01
        self.assertEqual(self.near(), SHARED)
        self.now += 0.02
        self.assertEqual(self.near(), ALONE)

    def test_mixed(self) -> None:
        """Small packets of others make packets short at once, and windows a part of the total."""
        self.fairness.record("one", LONGEST_DATA)
        self.fairness.record("two", ALWAYS_FITS)
        self.assertEqual((self.fairness.largest, self.fairness.is_mixed), (SHARED_PACKET, True))
        self.assertEqual(self.near(), min(SHARED, MIXED))
        self.assertFalse(self.fairness.is_mixed)
        self.now += SHARED_FOR - 0.01
        self.fairness.update(self.now)
        self.assertEqual(self.fairness.largest, SHARED_PACKET)
        self.now += 0.02
        self.assertTrue(self.fairness.update(self.now))
        self.assertEqual((self.fairness.largest, self.near()), (LONGEST_DATA, SHARED))

    def test_forget(self) -> None:
        """A closed channel does not count as active, and only it is forgotten."""
        self.fairness.record("one", 1)
        self.fairness.forget("two")
        self.assertEqual(self.fairness.last_active, "one")
        self.fairness.forget("one")
        self.fairness.record("two", 1)
        self.assertEqual((self.near(), self.fairness.largest), (ALONE, LONGEST_DATA))
