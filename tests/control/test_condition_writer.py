"""Tests of `tower.control.condition_writer`."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.logger import LogLevel, capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tower.clusters.cluster import Cluster, Condition
from tower.control.condition_writer import BURST, RETRY, WINDOW, ConditionWriter
from tower.store.records import StoreFailed


class ConditionWriterTests(SynchronousTestCase):
    """Limits, logs, errors."""

    def setUp(self) -> None:
        """One cluster, and a source of conditions that the writer asks again after a write."""
        self.bench = Bench()
        self.clock = self.bench.clock
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.wanted = self.condition()
        self.writer = ConditionWriter(self.clock, self.bench.clusters, self.again)
        self.addCleanup(lambda: self.assertEqual(self.clock.getDelayedCalls(), []))
        self.addCleanup(self.writer.stop)

    @staticmethod
    def condition(status: str = "True", reason: str = "Ready", message: str = "good") -> Condition:
        """Return a condition."""
        return Condition("Available", status, reason, message, 0.0)  # type: ignore[arg-type]

    def again(self, name: str) -> None:
        """Want the same again."""
        self.writer.want(self.bench.clusters.require(name), [self.wanted])

    def want(self, *parts: str) -> None:
        """Want a condition."""
        self.wanted = self.condition(*parts)
        self.again("alpha")

    def written(self) -> tuple[str, str, str, float]:
        """Return the written condition, with the seconds until its transition."""
        found = self.bench.clusters.require("alpha").condition("Available")
        assert found is not None
        return found.status, found.reason, found.message, found.last_transition - NOW

    def test_changes(self) -> None:
        """A changed status is written at once, a reason or message after a pause."""
        self.want()
        self.assertEqual(self.written(), ("True", "Ready", "good", 0))
        self.clock.advance(1)
        self.want("True", "Ready", "better")
        self.clock.advance(28)
        self.assertEqual(self.written()[2], "good")
        self.clock.advance(1)
        self.assertEqual(self.written(), ("True", "Ready", "better", 0))
        self.want("True", "Skewed", "better")
        self.clock.advance(9)
        self.assertEqual(self.written()[1], "Ready")
        self.clock.advance(1)
        self.assertEqual(self.written(), ("True", "Skewed", "better", 0))
        self.want("False", "Refused", "cure")
        self.assertEqual(self.written(), ("False", "Refused", "cure", 40))

    def test_nothing_changed(self) -> None:
        """The same is not written again, and a change that was taken back is not written."""
        self.want()
        version = self.bench.store.version
        self.want()
        self.want("True", "Ready", "other")
        self.want()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.bench.store.version, version)

    def test_flapping(self) -> None:
        """A member that flaps each second causes at most `BURST` writes in `WINDOW`, and the end is right."""
        self.want()
        version = self.bench.store.version
        for second in range(120):
            self.clock.advance(1)
            self.want(*(("True", "Ready") if second % 2 else ("False", "Refused")), f"message {second}")
        self.assertLessEqual(self.bench.store.version - version, (120 / WINDOW + 1) * BURST)
        self.clock.advance(60)
        self.assertEqual(self.written()[:3], ("True", "Ready", "message 119"))

    def test_chatty(self) -> None:
        """A member that changes its message each second causes two writes a minute."""
        self.want()
        version = self.bench.store.version
        for second in range(120):
            self.clock.advance(1)
            self.want("True", "Ready", f"message {second}")
        self.assertEqual(self.bench.store.version - version, 4)

    def test_log(self) -> None:
        """Each change of Available has one line, with the reason and the cure; an unknown state has none."""
        with capturedLogs() as events:
            self.want("Unknown", "NotChecked", "wait")
            self.want("False", "Refused", "start it")
            self.want("False", "Refused", "start it")
            self.want("True", "Ready", "good")
            self.clock.advance(100)
            self.want("True", "Ready", "other text")
            self.clock.advance(100)
            self.want("True", "AgentDegraded", "one is broken")
        self.assertEqual(
            [
                (event["log_level"], eventAsText(event, includeTimestamp=False, includeSystem=False))
                for event in events
            ],
            [
                (LogLevel.warn, "cluster alpha is not available: Refused: start it"),
                (LogLevel.info, "cluster alpha is available: Ready: good"),
                (LogLevel.warn, "cluster alpha is available: AgentDegraded: one is broken"),
            ],
        )

    def test_changes_during_a_write(self) -> None:
        """A change during a write is written after it."""
        writing: Deferred[Cluster] = Deferred()
        whole = self.bench.clusters.set_conditions
        self.patch(self.bench.clusters, "set_conditions", lambda _name, _wanted: writing)
        self.want()
        self.want("False", "Refused", "cure")
        self.assertIsNone(self.bench.clusters.require("alpha").condition("Available"))
        self.patch(self.bench.clusters, "set_conditions", whole)
        writing.callback(self.bench.clusters.require("alpha"))
        self.assertEqual(self.written()[:2], ("False", "Refused"))

    def test_store_fails(self) -> None:
        """Failed writes are logged in one line a minute, and tried again until there is space."""
        whole = self.bench.clusters.set_conditions
        text = "cannot write tower.db: no space left: free space on the disk"
        self.patch(self.bench.clusters, "set_conditions", lambda _name, _wanted: fail(StoreFailed(text)))
        with capturedLogs() as events:
            for _ in range(3):
                self.want("False", "Refused", "start it")
            for number in range(50):
                name = f"more{number}"
                self.writer.want(self.successResultOf(self.bench.clusters.add(name)), [self.wanted])
            self.clock.pump([RETRY] * 3)
            for number in range(50):
                self.writer.forget(f"more{number}")
            self.patch(self.bench.clusters, "set_conditions", whole)
            self.clock.advance(RETRY)
        self.assertEqual(self.written()[:2], ("False", "Refused"))
        lines = [eventAsText(event, includeTimestamp=False, includeSystem=False) for event in events]
        own = [line for line in lines if "cluster more" not in line]
        self.assertEqual(own[0], "cluster alpha is not available: Refused: start it")
        self.assertEqual(len(own), 4, own)
        self.assertEqual(
            own[1], f"conditions of clusters are not up to date, 1 writes failed; retrying: {text}"
        )
        self.assertIn(f"writes failed; retrying: {text}", own[2])
        self.assertEqual(own[3], "conditions of clusters are written again")

    def test_removed(self) -> None:
        """A removed cluster leaves nothing behind."""
        self.want()
        self.want("True", "Ready", "other")
        cluster = self.successResultOf(self.bench.clusters.remove("alpha"))
        self.writer.forget("alpha")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.writer.want(cluster, [self.condition("False", "Refused")])
