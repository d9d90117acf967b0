"""Tests of `tower.kube.rest.reflector`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import TIMEOUT, FakeHost
from tower.kube.rest.host_api import WATCH_TIME, Object, ResourceType, WatchEvent
from tower.kube.rest.reflector import FIRST_DELAY, HEALTHY, LONGEST_DELAY, SHORT, WATCH_SECONDS, Reflector
from tower.kube.rest.well_known import SECRETS

NAMESPACE = "kubesphere-system"


class Copy:
    """A follower that has a copy of the objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.calls: list[str] = []
        self.fault: Callable[[], None] = lambda: None

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """Replace all."""
        self.calls.append(f"replaced {len(items)} {resource_version}")
        self.fault()
        self.objects = {item["metadata"]["name"]: item for item in items}

    def changed(self, event: WatchEvent) -> None:
        """Apply one change."""
        name = event.object["metadata"]["name"]
        self.calls.append(f"{event.type} {name}")
        self.fault()
        if event.type == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = event.object


class RecordingHost(FakeHost):
    """A host that records versions and durations of watches."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.since: list[int] = []
        self.seconds: list[int] = []

    async def watch(
        self,
        resource: ResourceType,
        namespace: str | None,
        resource_version: str,
        deliver: Callable[[WatchEvent], None],
        label_selector: str = "",
        *,
        field_selector: str = "",
        seconds: int = WATCH_TIME,
        opened: Callable[[], None] | None = None,
    ) -> None:
        """Record, and watch."""
        self.since.append(int(resource_version))
        self.seconds.append(seconds)
        await super().watch(
            resource,
            namespace,
            resource_version,
            deliver,
            label_selector,
            field_selector=field_selector,
            seconds=seconds,
            opened=opened,
        )


class ReflectorTests(SynchronousTestCase):
    """A reflector of Secrets."""

    def setUp(self) -> None:
        """Start it with one object."""
        self.clock = Clock()
        self.host = RecordingHost(self.clock)
        self.copy = Copy()
        self.put("a")
        self.chance = 0.0
        self.reflector = self.make()

    def make(self, **options: Any) -> Reflector:
        """Return a reflector."""
        return Reflector(self.host, SECRETS, NAMESPACE, self.copy, self.clock, lambda: self.chance, **options)

    def start(self) -> None:
        """Start it."""
        self.reflector.start()
        self.addCleanup(self.reflector.stop)

    def put(self, name: str, **labels: str) -> None:
        """Write an object."""
        self.host.put(SECRETS, {"metadata": {"name": name, "labels": labels}}, NAMESPACE)

    def waits(self) -> list[float]:
        """Return the times until the calls of the clock: the next attempt, and a line of the log."""
        now = self.clock.seconds()
        return [round(call.getTime() - now, 6) for call in self.clock.getDelayedCalls()]

    def count(self, verb: str) -> int:
        """Return how many requests there were."""
        return sum(request[0] == verb for request in self.host.requests)

    def same(self) -> None:
        """Check that the copy is that of the host."""
        stored = {item["metadata"]["name"]: item for item in self.host.objects(SECRETS, NAMESPACE)}
        self.assertEqual(self.copy.objects, stored)

    def test_follows(self) -> None:
        """It has the list, then each change, and one list is enough."""
        self.start()
        self.put("b")
        self.put("a", x="1")
        self.host.remove(SECRETS, "b", NAMESPACE)
        self.same()
        self.assertEqual(self.copy.calls[1:], ["ADDED b", "MODIFIED a", "DELETED b"])
        counts = self.reflector.counts
        self.assertEqual((counts.lists, counts.watches, counts.events, counts.failures), (1, 1, 3, 0))

    def test_watch_ends(self) -> None:
        """It watches again from its last event or bookmark, without a list, for a random time."""
        self.start()
        self.put("b")
        self.clock.advance(SHORT)
        self.host.end_watches()
        self.assertEqual(self.host.since[1], self.host.version)
        self.put_elsewhere()
        self.host.bookmark()
        self.chance = 0.5
        self.host.end_watches()
        self.assertEqual(self.host.since[2], self.host.version)
        self.assertEqual(self.host.seconds, [WATCH_SECONDS, WATCH_SECONDS, WATCH_SECONDS * 1.5])
        self.assertEqual((self.count("list"), self.reflector.counts.bookmarks), (1, 1))

    def put_elsewhere(self) -> None:
        """Write an object that is not followed."""
        self.host.put(SECRETS, {"metadata": {"name": "z"}}, "default")

    def test_synced(self) -> None:
        """It is synchronized after the first list; waiting before and after works."""
        self.host.freeze()
        self.start()
        waiting = self.reflector.when_synced()
        canceled = self.reflector.when_synced()
        canceled.cancel()
        self.failureResultOf(canceled, CancelledError)
        self.assertFalse(self.reflector.synced)
        self.assertNoResult(waiting)
        self.host.thaw()
        self.assertTrue(self.reflector.synced)
        self.successResultOf(waiting)
        self.successResultOf(self.reflector.when_synced())

    def test_expired(self) -> None:
        """After 410 it lists at once, once; if the watch expires again it waits."""
        self.start()
        self.host.hold_events()
        self.put("b")
        self.host.end_watches(410)
        self.same()
        self.assertEqual((self.count("list"), self.reflector.counts.expirations), (2, 1))
        self.host.end_watches(410)
        self.assertEqual(self.count("list"), 2)
        self.clock.advance(FIRST_DELAY)
        self.assertEqual((self.count("list"), self.reflector.counts.expirations), (3, 2))

    def test_compacted(self) -> None:
        """Changes that were forgotten while it was cut off are in the next list."""
        self.start()
        self.host.hold_events()
        self.host.end_watches(0)
        self.put("b")
        self.host.remove(SECRETS, "a", NAMESPACE)
        self.host.compact()
        self.host.release_events()
        self.clock.advance(FIRST_DELAY)
        self.same()
        self.assertEqual((self.count("list"), self.reflector.failure), (2, ""))

    def test_backoff(self) -> None:
        """Delays after failures double up to the longest, prolonged by chance."""
        self.host.fail_next(500, count=9)
        self.start()
        delays = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, LONGEST_DELAY, LONGEST_DELAY, 2 * LONGEST_DELAY]
        for attempt, delay in enumerate(delays, 1):
            self.assertEqual(self.count("list"), attempt)
            self.assertIn(delay, self.waits())
            self.chance = 1.0 if attempt == 8 else 0.0
            self.clock.advance(delay)
        self.same()
        self.assertEqual((self.reflector.failure, self.reflector.counts.failures), ("", 9))

    def test_failure(self) -> None:
        """A failure names the cure, and ends when a watch is accepted."""
        self.start()
        self.host.fail_next(403, verbs=["watch"])
        self.host.end_watches(0)
        self.assertIn("check that the API server runs", self.reflector.failure)
        self.clock.advance(FIRST_DELAY)
        self.assertIn("grant get, list and watch of secrets", self.reflector.failure)
        self.clock.advance(2 * FIRST_DELAY)
        self.assertEqual((self.reflector.failure, self.count("list")), ("", 1))

    def test_log(self) -> None:
        """Failures that last for seconds are one line for each cause, and their end is another one."""
        events: list[LogEvent] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        for code, text in ((0, "cut"), (0, "refused"), (403, "no"), (403, "still"), (0, "slow")):
            self.host.fail_next(code, text, verbs=["list"])
        self.start()
        for _ in range(8):
            self.clock.advance(LONGEST_DELAY)
        lines = [formatEvent(event) for event in events if "reflector" in str(event.get("log_namespace"))]
        self.assertEqual(
            [line[:30] for line in lines],
            ["not following secrets: GET /ap"] * 3 + ["following secrets again, after"],
        )
        self.assertEqual(["refused" in lines[0], "403: " in lines[1], "slow" in lines[2]], [True] * 3)

    def test_healthy(self) -> None:
        """A watch that lasted ends a row of failures."""
        self.start()
        for elapsed, delay in ((1, 0.8), (1, 1.6), (HEALTHY, 0.8)):
            self.clock.advance(elapsed)
            self.host.end_watches(0)
            self.assertIn(delay, self.waits())
            self.clock.advance(delay)

    def test_retry_after(self) -> None:
        """The delay that the server requests is kept, within limits."""
        self.host.fail_next(429, retry_after=7)
        self.host.fail_next(429, retry_after=99999)
        self.start()
        self.clock.advance(6.9)
        self.assertEqual(self.count("list"), 1)
        self.clock.advance(0.1)
        self.assertEqual(self.count("list"), 2)
        self.clock.advance(LONGEST_DELAY)
        self.assertEqual(self.count("list"), 3)

    def test_short_watch(self) -> None:
        """A server that ends each watch at once is not asked in a loop."""
        self.start()
        self.host.end_watches()
        self.assertIn("the watch ended at once", self.reflector.failure)
        self.assertEqual(self.count("watch"), 1)
        self.clock.advance(FIRST_DELAY)
        self.assertEqual((self.count("watch"), self.reflector.failure), (2, ""))

    def test_frozen(self) -> None:
        """A frozen server is a failure after the timeout; later it continues without a list."""
        self.start()
        self.host.freeze()
        self.host.end_watches(0)
        self.clock.advance(FIRST_DELAY)
        self.clock.advance(TIMEOUT)
        self.assertIn("it took longer than 15 s", self.reflector.failure)
        self.put("b")
        self.host.thaw()
        self.clock.advance(2 * FIRST_DELAY)
        self.same()
        self.assertEqual((self.reflector.failure, self.count("list")), ("", 1))

    def test_faulty_follower(self) -> None:
        """An error of the follower is logged, and a complete list repairs the copy."""
        self.start()
        self.copy.fault = lambda: 1 / 0  # type: ignore[assignment]
        self.put("b")
        self.put("c")
        self.assertEqual(self.copy.calls[1:], ["ADDED b"])
        self.clock.advance(0)
        self.assertIn("ZeroDivisionError", self.reflector.failure)
        self.clock.advance(FIRST_DELAY)
        self.copy.fault = lambda: None
        self.clock.advance(2 * FIRST_DELAY)
        self.same()
        self.assertEqual(self.reflector.failure, "")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_selectors(self) -> None:
        """Selectors are those of list and watch."""
        self.put("b", x="1")
        self.reflector = self.make(label_selector="x=1", field_selector="metadata.name=b")
        self.start()
        self.put("b", x="1", y="1")
        self.put("c", x="1")
        self.assertEqual(list(self.copy.objects), ["b"])
        self.assertEqual(self.copy.calls[1:], ["MODIFIED b"])

    def test_stop(self) -> None:
        """Stopped while it watches, waits or is called, it does nothing more."""
        self.start()
        self.reflector.stop()
        self.assertEqual((self.host.watches, self.clock.getDelayedCalls()), ([], []))
        self.reflector = self.make()
        self.host.fail_next(500)
        self.start()
        waiting = self.reflector.when_synced()
        self.reflector.stop()
        self.failureResultOf(waiting, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.reflector = self.make()
        self.copy.fault = self.reflector.stop
        self.start()
        self.assertEqual((self.host.watches, self.clock.getDelayedCalls()), ([], []))
        self.assertEqual(self.count("watch"), 1)
