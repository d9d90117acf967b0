"""Events of clusters in a store."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.clusters.cluster_events import (
    KEPT,
    MESSAGE_LIMIT,
    REASON_LIMIT,
    WRITE_PERIOD,
    ClusterEvent,
    ClusterEvents,
)
from tower.store import MemoryStore
from tower.store.records import Expired


class ClusterEventsTests(SynchronousTestCase):
    """Counting, writing and forgetting."""

    def setUp(self) -> None:
        """Add a cluster."""
        self.clock: Any = Clock()
        self.clock.advance(1_000_000.0)
        self.store = MemoryStore()
        self.clusters = Clusters(self.store, None, self.clock)
        self.alpha = self.successResultOf(self.clusters.add("alpha"))
        self.events = ClusterEvents(self.store, self.clock)

    def record(self, reason: str = "Lost", message: str = "Gone.") -> None:
        """Record a warning about alpha."""
        self.events.record(self.alpha, reason, message, "Warning")

    def one(self) -> ClusterEvent:
        """Return the only event."""
        (event,) = self.events.list()
        return event

    def test_first(self) -> None:
        """The first occurrence is written at once."""
        self.record()
        event = self.one()
        self.assertEqual(
            (event.cluster, event.reason, event.level, event.message, event.count),
            ("alpha", "Lost", "Warning", "Gone.", 1),
        )
        self.assertEqual((event.first, event.last), (1_000_000.0, 1_000_000.0))
        self.assertEqual(self.events.get(event.name), event)
        self.assertIsNone(self.events.get("other"))

    def test_one_write_per_period(self) -> None:
        """Later occurrences are counted, and written once per period, with the last message."""
        self.record()
        version = self.store.version
        for number in range(100):
            self.clock.advance(1)
            self.record(message=f"Gone {number}.")
            self.events.sweep()
        self.assertEqual(self.store.version, version)
        self.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        self.assertEqual(self.store.version, version + 1)
        event = self.one()
        self.assertEqual((event.count, event.message, event.last), (101, "Gone 99.", 1_000_100.0))
        self.assertEqual(event.first, 1_000_000.0)
        self.clock.advance(WRITE_PERIOD)
        self.record()
        self.assertEqual(self.one().count, 102)

    def test_reasons_are_separate(self) -> None:
        """Each reason and each cluster has its own event."""
        beta = self.successResultOf(self.clusters.add("beta"))
        self.record()
        self.record("Connected")
        self.events.record(beta, "Lost", "Gone.")
        self.assertEqual(len({event.name for event in self.events.list()}), 3)

    def test_restart(self) -> None:
        """A new process goes on counting, and does not write earlier."""
        self.record()
        self.clock.advance(60)
        self.events = ClusterEvents(self.store, self.clock)
        self.record()
        self.assertEqual(self.one().count, 1)
        self.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        self.assertEqual(self.one().count, 2)

    def test_forgotten(self) -> None:
        """An event is removed an hour after its last occurrence; the next one counts from 1."""
        self.record()
        self.clock.advance(KEPT - 1)
        self.events.sweep()
        self.assertEqual(len(self.events.list()), 1)
        self.clock.advance(1)
        self.events.sweep()
        self.assertEqual(self.events.list(), [])
        self.record()
        self.assertEqual(self.one().count, 1)

    def test_clock_set_back(self) -> None:
        """Events of the future are removed, so that a wrong clock does not hide new ones."""
        self.record()
        past: Any = Clock()
        past.advance(10.0)
        self.events = ClusterEvents(self.store, past)
        self.events.sweep()
        self.record()
        self.assertEqual(self.one().last, 10.0)

    def test_removed_with_the_cluster(self) -> None:
        """A cluster's events are removed with it, and none is written afterwards."""
        self.record()
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(self.events.list(), [])
        self.record("Other")
        self.assertEqual(self.events.list(), [])
        self.successResultOf(self.clusters.add("alpha"))
        self.record("Another")
        self.assertEqual(self.events.list(), [])

    def test_limits(self) -> None:
        """Reasons are limited in number, messages in length; control characters are escaped."""
        for number in range(REASON_LIMIT + 10):
            self.record(f"Reason{number}", "\x1b" + "x" * 10_000)
        events = self.events.list()
        self.assertEqual(len(events), REASON_LIMIT)
        self.assertEqual({len(event.message) for event in events}, {MESSAGE_LIMIT})
        self.assertNotIn("\x1b", events[0].message)
        self.clock.advance(KEPT)
        self.events.sweep()
        self.record("Later")
        self.assertEqual(len(self.events.list()), 1)

    def test_store_fails(self) -> None:
        """A store that cannot write is logged."""
        self.successResultOf(self.store.stop())
        self.record()
        self.events.sweep()
        self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_changes(self) -> None:
        """Changes can be followed and listed; unknown versions are rejected."""
        seen: list[tuple[str, str]] = []
        watch = self.events.watch(lambda kind, event: seen.append((kind, event.reason)))
        version = self.store.version
        self.record()
        watch.stop()
        self.assertEqual(seen, [("ADDED", "Lost")])
        self.assertEqual([kind for kind, _ in self.events.changes(version)], ["ADDED"])
        self.events.check(version)
        self.assertRaises(Expired, self.events.check, version + 100)
