"""Tests of `tower.controller.work_queue`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tower.controller.work_queue import FIRST_RETRY, LONGEST_RETRY, TIMEOUT, WorkQueue


class WorkQueueTests(SynchronousTestCase):
    """A queue whose work ends when the test ends it."""

    def setUp(self) -> None:
        """Start a queue with two workers."""
        self.clock = Clock()
        self.begun: list[str] = []
        self.works: dict[str, Deferred[float | None]] = {}
        self.failures: list[tuple[str, str, float]] = []
        self.queue = WorkQueue(self.clock, self._work, self._failed, 2)
        self.queue.start()

    async def _work(self, key: str) -> float | None:
        self.begun.append(key)
        self.works[key] = Deferred()
        return await self.works[key]

    def _failed(self, key: str, failure: Failure, delay: float) -> None:
        self.failures.append((key, str(failure.value), delay))

    def turn(self, seconds: float = 0.0) -> list[str]:
        """Let some iterations pass after *seconds*; return the keys whose work has begun."""
        self.clock.advance(seconds)
        self.clock.pump([0, 0, 0, 0])
        begun, self.begun = self.begun, []
        return begun

    def end(self, key: str, after: float | None = None) -> None:
        """End the work on a key."""
        self.works.pop(key).callback(after)

    def test_a_key_is_queued_once(self) -> None:
        """Keys that are added several times before a worker is free are worked on once, in order."""
        for key in "abacab":
            self.queue.add(key)
        self.assertEqual(self.turn(), ["a", "b"])
        self.end("b")
        self.assertEqual(self.turn(), ["c"])
        for key in "ac":
            self.end(key)
        self.assertEqual(self.turn(), [])
        self.assertTrue(self.queue.is_idle)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_never_two_workers_for_a_key(self) -> None:
        """A key that is added while it is worked on is worked on once more, afterwards."""
        self.queue.add("a")
        self.turn()
        self.queue.add("a")
        self.queue.add("a")
        self.assertEqual(self.turn(), [])
        self.end("a")
        self.assertEqual(self.turn(), ["a"])
        self.end("a")
        self.assertEqual(self.turn(), [])

    def test_workers_are_bounded(self) -> None:
        """No more keys than workers are worked on at once."""
        for number in range(10):
            self.queue.add(str(number))
        self.assertEqual(self.turn(), ["0", "1"])

    def test_failures_back_off(self) -> None:
        """A failing key is retried after growing pauses; a success resets them."""
        self.queue.add("a")
        self.turn()
        delays = []
        for _ in range(12):
            self.works.pop("a").errback(ValueError("no"))
            key, text, delay = self.failures.pop()
            self.assertEqual((key, text, self.queue.failing), ("a", "no", ["a"]))
            delays.append(delay)
            self.assertEqual(self.turn(delay - 0.01), [])
            self.assertEqual(self.turn(0.02), ["a"])
        self.assertEqual(delays[:3], [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY])
        self.assertEqual(delays[-1], LONGEST_RETRY)
        self.end("a")
        self.assertEqual(self.queue.failing, [])
        self.queue.add("a")
        self.turn()
        self.works.pop("a").errback(ValueError("no"))
        self.assertEqual(self.failures.pop()[2], FIRST_RETRY)

    def test_a_change_does_not_wait_for_the_retry(self) -> None:
        """A key whose retry is due later is worked on at once when it is added, and only then."""
        self.queue.add("a")
        self.turn()
        self.works.pop("a").errback(ValueError("no"))
        self.queue.add("a")
        self.assertEqual(self.turn(), ["a"])
        self.end("a")
        self.assertEqual(self.turn(100), [])

    def test_retry_failed(self) -> None:
        """Failed keys are worked on at once after the cause was removed."""
        self.queue.add("a")
        self.turn()
        self.works.pop("a").errback(ValueError("no"))
        self.queue.retry_failed()
        self.assertEqual(self.turn(), ["a"])

    def test_later_work(self) -> None:
        """A key is worked on again after the time that its work returned; the earlier of two times counts."""
        self.queue.add("a")
        self.turn()
        self.end("a", 50.0)
        self.queue.add_after("a", 70.0)
        self.assertEqual(self.turn(49), [])
        self.assertEqual(self.turn(2), ["a"])
        self.end("a", 50.0)
        self.queue.add_after("a", 10.0)
        self.assertEqual(self.turn(11), ["a"])

    def test_work_that_never_ends(self) -> None:
        """Work without an end is cancelled, and retried like a failure."""
        self.queue.add("a")
        self.turn()
        self.turn(TIMEOUT + 1)
        self.assertEqual([key for key, _, _ in self.failures], ["a"])
        self.assertEqual(self.turn(1), ["a"])

    def test_stop(self) -> None:
        """A stop cancels the work and leaves no timers; keys that are added later wait."""
        self.queue.add("a")
        self.queue.add_after("b", 5.0)
        self.turn()
        self.queue.add("a")
        stopping = self.queue.stop()
        self.successResultOf(stopping)
        self.assertEqual((self.failures, self.clock.getDelayedCalls()), ([], []))
        self.queue.add("c")
        self.assertEqual(self.turn(1), [])
