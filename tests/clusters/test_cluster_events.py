"""Events of clusters in a store."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.clusters.cluster_events import (
    CLIENT_LIMIT,
    COUNT_LIMIT,
    KEPT,
    KEY_LIMIT,
    MESSAGE_LIMIT,
    RETRY,
    WRITE_PERIOD,
    ClusterEvent,
    ClusterEvents,
    TooManyEvents,
)
from tower.store import MemoryStore
from tower.store.records import Expired, StoreFailed


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
        version = self.store.version
        self.record()
        self.assertEqual(self.store.version, version)
        self.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        self.assertEqual(self.store.version, version + 1)
        self.assertEqual(self.one().count, 2)

    def test_recovery(self) -> None:
        """Reads contain occurrences that are not written yet, so that the newest event is true."""
        self.record("Connected")
        self.clock.advance(60)
        self.record("Lost")
        version, event = self.store.version, self.events.get(self.events.list()[0].name)
        assert event is not None
        self.clock.advance(0.2)
        self.record("Connected", "Back.")
        newest = max(self.events.list(), key=lambda event: event.last)
        self.assertEqual((newest.reason, newest.message, newest.count), ("Connected", "Back.", 2))
        self.assertEqual(self.events.get(newest.name), newest)
        self.assertEqual(self.store.version, version)

    def test_stop(self) -> None:
        """A stop writes what was only counted, and nothing else."""
        self.record("Connected")
        self.record("Lost")
        self.successResultOf(self.events.flush())
        version = self.store.version
        self.record("Connected")
        self.successResultOf(self.events.flush())
        self.assertEqual(self.store.version, version + 1)
        self.successResultOf(self.events.flush())
        self.assertEqual(self.store.version, version + 1)
        self.events = ClusterEvents(self.store, self.clock)
        self.assertEqual(
            {event.reason: event.count for event in self.events.list()}, {"Connected": 2, "Lost": 1}
        )

    def test_stop_with_a_full_disk(self) -> None:
        """A stop that cannot write is logged, and ends."""
        self.record()
        self.record()
        self.patch(self.store, "transact", lambda _: fail(StoreFailed("no space left")))
        with capturedLogs() as logs:
            self.successResultOf(self.events.flush())
        self.assertIn("no space left", eventAsText(logs[0]))

    def test_keys(self) -> None:
        """Each key has its own event, also after a restart; beyond the limit, keys share one."""
        for key in ("a", "b", "a"):
            self.events.record(self.alpha, "AgentEnrolled", f"Key {key}.", key=key)
        found = {event.message: event.count for event in self.events.list()}
        self.assertEqual(found, {"Key a.": 2, "Key b.": 1})
        self.successResultOf(self.events.flush())
        self.events = ClusterEvents(self.store, self.clock)
        for number in range(KEY_LIMIT + 10):
            self.events.record(self.alpha, "AgentEnrolled", f"Key {number}.", key=str(number))
        self.events.record(self.alpha, "AgentEnrolled", "Key a again.", key="a")
        events = self.events.list()
        self.assertEqual(len(events), KEY_LIMIT + 1)
        self.assertEqual({event.message: event.count for event in events}["Key 41."], 12)
        self.assertEqual({event.message: event.count for event in events}["Key a again."], 3)
        self.clock.advance(KEPT)
        self.events.sweep()
        self.events.record(self.alpha, "AgentEnrolled", "Key new.", key="new")
        self.events.record(self.alpha, "AgentEnrolled", "Key newer.", key="newer")
        self.assertEqual(len(self.events.list()), 2)

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

    def of_client(self, reason: str, count: int = 0, component: str = "argocd") -> ClusterEvent:
        """Record an event of a client about alpha."""
        return self.successResultOf(
            Deferred.fromCoroutine(
                self.events.record_of_client(self.alpha, component, reason, "Synced.", "Normal", count)
            )
        )

    def test_limits(self) -> None:
        """Messages are limited in length; control characters are escaped."""
        self.record("Long", "\x1b" + "x" * 10_000)
        self.assertEqual(len(self.one().message), MESSAGE_LIMIT)
        self.assertNotIn("\x1b", self.one().message)

    def test_limit_of_clients(self) -> None:
        """Clients may add a limited number of events, which expire; Tower's own do not count."""
        for number in range(CLIENT_LIMIT):
            self.of_client(f"Reason{number}")
        self.failureResultOf(
            Deferred.fromCoroutine(self.events.record_of_client(self.alpha, "argocd", "More", "")),
            TooManyEvents,
        )
        self.of_client("Reason0")
        for number in range(CLIENT_LIMIT + 1):
            self.record(f"Own{number}")
        self.assertEqual(len(self.events.list()), 2 * CLIENT_LIMIT + 1)
        self.events = ClusterEvents(self.store, self.clock)
        self.failureResultOf(
            Deferred.fromCoroutine(self.events.record_of_client(self.alpha, "argocd", "More", "")),
            TooManyEvents,
        )
        self.clock.advance(KEPT)
        self.events.sweep()
        self.of_client("More")
        self.assertEqual(self.one().component, "argocd")

    def test_clients(self) -> None:
        """An event of a client is counted as Tower's own are, and is never one of these."""
        self.record("Lost")
        first = self.of_client("Lost")
        self.assertEqual((first.count, first.component), (1, "argocd"))
        version = self.store.version
        self.assertEqual(self.of_client("Lost").count, 2)
        self.assertEqual(self.of_client("Lost", 7).count, 7)
        self.assertEqual(self.of_client("Lost", 3).count, 8)
        self.assertEqual(self.of_client("Lost", 10**30).count, COUNT_LIMIT)
        self.assertEqual(self.store.version, version)
        self.assertNotEqual(self.of_client("Lost", component="other").name, first.name)
        self.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        counts = {event.component: event.count for event in self.events.list()}
        self.assertEqual(counts, {"tower-proxy": 1, "argocd": COUNT_LIMIT, "other": 1})

    def test_store_fails(self) -> None:
        """A store that cannot write is logged once; the event is written when it can."""
        whole = self.store.transact
        self.patch(self.store, "transact", lambda _: fail(StoreFailed("no space left")))
        with capturedLogs() as logs:
            for _ in range(10):
                self.record()
                self.record("Other")
                self.clock.advance(1)
            self.failureResultOf(
                Deferred.fromCoroutine(self.events.record_of_client(self.alpha, "argocd", "Synced", "")),
                StoreFailed,
            )
            self.assertEqual(self.events.list(), [])
            self.patch(self.store, "transact", whole)
            self.clock.advance(RETRY)
            self.events.sweep()
        self.assertEqual(
            {event.reason: event.count for event in self.events.list()},
            {"Lost": 10, "Other": 10, "Synced": 1},
        )
        lines = [eventAsText(event, includeTimestamp=False, includeSystem=False) for event in logs]
        self.assertEqual(
            lines,
            [
                "events of clusters are not up to date, 1 writes failed; retrying: no space left",
                "events of clusters are written again",
            ],
        )

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
