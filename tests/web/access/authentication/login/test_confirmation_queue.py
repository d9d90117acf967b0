"""Tests of `tower.web.access.authentication.login.confirmation_queue`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authentication.login.confirmation_queue import (
    CONCURRENT,
    LONGEST_PAUSE,
    PAUSE,
    ConfirmationQueue,
)


class QueueTests(SynchronousTestCase):
    """Confirmations that end when the test wants it."""

    def setUp(self) -> None:
        """Make the queue."""
        self.clock: Any = Clock()
        self.begun: list[str] = []
        self.waiting: dict[str, Deferred[bool]] = {}
        self.queue = ConfirmationQueue(self.confirm, self.clock)

    async def confirm(self, session_id: str) -> bool:
        """Confirm a session."""
        self.begun.append(session_id)
        self.waiting[session_id] = waiting = Deferred[bool]()
        try:
            return await waiting
        except CancelledError:
            return False

    async def confirm_at_once(self, session_id: str) -> bool:
        """Confirm a session without waiting."""
        self.begun.append(session_id)
        return True

    def add(self, user: str, *numbers: int) -> None:
        """Add sessions of a user."""
        for each in numbers:
            self.queue.add(user, f"{user}-{each}")

    def end(self, is_confirmed: bool, *names: str) -> None:
        """End confirmations; by default all that have begun."""
        for name in names or list(self.waiting):
            self.waiting.pop(name).callback(is_confirmed)

    def fail_all(self, count: int = CONCURRENT) -> None:
        """Let confirmations fail."""
        self.add("joe", *range(count))
        self.end(False)

    def test_users_take_turns(self) -> None:
        """A user with many sessions does not delay the session of another user."""
        self.add("jane", *range(CONCURRENT + 50))
        self.assertEqual(len(self.begun), CONCURRENT)
        self.add("joe", 0, 0)
        self.assertEqual(len(self.queue), CONCURRENT + 51)
        self.end(True, "jane-0", "jane-1")
        self.assertEqual(self.begun[CONCURRENT:], [f"jane-{CONCURRENT}", "joe-0"])

    def test_requests_that_wait(self) -> None:
        """A session that a request waits for is confirmed before the others, and only once."""
        self.add("jane", *range(CONCURRENT))
        for user in range(100):
            self.add(f"u{user}", 0)
        results = [self.queue.result("u70", "u70-0") for _ in range(2)]
        self.add("u70", 0)
        self.end(True, "jane-0", "jane-1")
        self.assertEqual(self.begun[CONCURRENT:], ["u70-0", "u0-0"])
        results.append(self.queue.result("u70", "u70-0"))
        for each in results:
            self.assertNoResult(each)
        while self.waiting:
            self.end(True)
        for each in results:
            self.successResultOf(each)
        self.assertEqual((len(self.begun), len(self.queue)), (CONCURRENT + 100, 0))

    def test_requests_do_not_starve_others(self) -> None:
        """While requests wait, half of the slots are for other sessions."""
        self.add("jane", *range(CONCURRENT))
        self.add("joe", *range(10))
        for i in range(10):
            self.queue.result("ann", f"ann-{i}")
        self.end(True, *(f"jane-{i}" for i in range(10)))
        self.assertEqual(sum(each.startswith("joe") for each in self.begun), 5)

    def test_cancelled(self) -> None:
        """A request that does not wait any more is forgotten; the others get the result."""
        first, second = (self.queue.result("jane", "jane-0") for _ in range(2))
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(len(self.queue._waiters["jane-0"]), 1)
        self.end(True)
        self.successResultOf(second)
        self.assertEqual(self.queue._waiters, {})

    def test_given_up(self) -> None:
        """After so many failures in a row, all that wait are given up, and nothing is added for a pause."""
        self.add("jane", *range(3 * CONCURRENT))
        results = [self.queue.result("jane", f"jane-{i}") for i in range(2 * CONCURRENT, 3 * CONCURRENT)]
        self.end(False, *(f"jane-{i}" for i in range(CONCURRENT)))
        self.assertEqual(len(self.begun), 2 * CONCURRENT - 1)
        self.assertEqual(len(self.queue), CONCURRENT - 1, "only those in flight")
        self.successResultOf(results[-1])
        self.add("joe", 0)
        self.successResultOf(self.queue.result("joe", "joe-0"))
        self.assertNotIn("joe-0", self.begun)
        self.end(True, self.begun[-1])
        self.add("joe", 0)
        self.assertIn("joe-0", self.begun, "one that was in flight has succeeded")

    def test_pauses(self) -> None:
        """A provider that is down is asked once after each pause, which doubles up to a limit."""
        self.fail_all()
        pause = PAUSE
        for _ in range(6):
            begun = len(self.begun)
            self.clock.advance(pause - 1)
            self.add("jane", 0, 1)
            self.assertEqual(len(self.begun), begun)
            self.clock.advance(1)
            self.add("jane", 0, 1)
            self.assertEqual(len(self.begun), begun + 1)
            self.end(False)
            self.assertEqual(len(self.queue), 0)
            pause = min(2 * pause, LONGEST_PAUSE)
        self.clock.advance(pause)
        self.add("jane", *range(CONCURRENT + 1))
        self.end(True)
        self.assertEqual(len(self.waiting), CONCURRENT)
        self.end(True)
        self.fail_all()
        self.clock.advance(PAUSE)
        self.add("jane", 7)
        self.assertEqual(list(self.waiting), ["jane-7"], "the first pause is short again")

    def test_at_once(self) -> None:
        """Many confirmations that end at once do not nest."""
        self.add("jane", *range(CONCURRENT + 5000))
        self.patch(self.queue, "_confirm", self.confirm_at_once)
        self.end(True, "jane-0")
        self.assertEqual(len(self.begun), CONCURRENT + 5000)

    def test_stop(self) -> None:
        """At the stop, no request goes on or waits, and none begins later."""
        results = [self.queue.result("jane", f"jane-{i}") for i in range(CONCURRENT + 5)]
        self.add("joe", 0)
        self.queue.stop()
        for each in [*results, self.queue.result("jane", "jane-0")]:
            self.successResultOf(each)
        self.assertEqual((len(self.begun), len(self.queue)), (CONCURRENT, 0))
