"""Tests of `tower.web.access.audit.webhook_backend`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.client import APIError
from tower.web.access.audit.batches import BatchSettings
from tower.web.access.audit.formats import EVENT_HEAD
from tower.web.access.audit.webhook_backend import (
    ATTEMPTS,
    FACTOR,
    LONGEST_DELAY,
    PARALLEL,
    REJECTED_PIECES,
    STOP_TIMEOUT,
    WAIT_LIMIT,
    WebhookBackend,
)


def event(number: int = 1) -> bytes:
    """Return an event."""
    return f'{EVENT_HEAD}"auditID":"{number}"}}\n'.encode()


class FakeEventWebhook:
    """A webhook whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[Deferred[None], list[str]]] = []
        self.closed = False

    async def send(self, data: bytes) -> None:
        """Leave it to the test."""
        value = json.loads(data)
        assert (value["kind"], value["apiVersion"]) == ("EventList", "audit.k8s.io/v1")
        done: Deferred[None] = Deferred()
        self.asked.append((done, [each["auditID"] for each in value["items"]]))
        await done

    def close(self) -> None:
        """Close."""
        self.closed = True

    def answer(self, code: int = 200, retry_after: float = 0) -> list[str]:
        """Answer the oldest request; return its events."""
        done, found = self.asked.pop(0)
        if code == 200:
            done.callback(None)
        else:
            done.errback(APIError("POST", "hook", code, "no", retry_after=retry_after))
        return found


class WebhookBackendTests(SynchronousTestCase):
    """Tests of `WebhookBackend`."""

    def setUp(self) -> None:
        """Make a backend with small batches."""
        self.clock, self.hook = Clock(), FakeEventWebhook()
        self.make(buffer_size=10, max_size=3, max_wait=30.0, burst=100)

    def make(self, **settings: Any) -> None:
        """Make a backend."""
        self.backend = WebhookBackend(self.clock, self.hook, BatchSettings(**settings), lambda: 0.0)

    def put(self, *numbers: int) -> None:
        """Put events."""
        for each in numbers:
            self.backend.put(event(each))

    def test_batches(self) -> None:
        """A full batch is posted at once, and another one after the longest wait."""
        self.put(1, 2)
        self.clock.advance(29)
        self.assertEqual(self.hook.asked, [])
        self.clock.advance(1)
        self.assertEqual(self.hook.answer(), ["1", "2"])
        self.put(3, 4, 5)
        self.clock.advance(0)
        self.assertEqual(self.hook.answer(), ["3", "4", "5"])
        self.assertEqual((self.backend.waiting, self.backend._size, self.backend.lost), (0, 0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_bounded(self) -> None:
        """While a webhook hangs, few batches are posted, few events wait, and the others are counted."""
        with capturedLogs() as logged:
            for number in range(20):
                self.put(number)
                self.clock.advance(0)
        self.assertEqual((len(self.hook.asked), self.backend.waiting, self.backend.lost), (3, 10, 10))
        texts = [formatEvent(each) for each in logged]
        self.assertEqual(texts, ["audit webhook: events lost so far: 1; it is too slow, or rejects them"])
        self.make(buffer_size=100, max_size=1)
        self.hook.asked.clear()
        self.put(*range(50))
        self.clock.advance(0)
        self.assertEqual(len(self.hook.asked), PARALLEL)

    def test_small_buffer(self) -> None:
        """A buffer smaller than a batch loses nothing if the webhook takes a second for each."""
        self.make(buffer_size=2, max_size=20, max_wait=30.0, burst=100)
        for second in range(60):
            for _ in range(10):
                self.put(second)
                self.clock.advance(0.1)
            if self.hook.asked:
                self.hook.answer()
        self.assertEqual(self.backend.lost, 0)
        waiting = self.backend.waiting
        self.put(*range(100))  # the webhook hangs
        self.assertEqual((self.backend.waiting, self.backend.lost), (40, 60 + waiting))

    def test_large(self) -> None:
        """A batch has at most so many bytes."""
        self.make(max_bytes=2 * len(event()))
        self.put(1, 2, 3)
        self.clock.advance(30)
        self.assertEqual([self.hook.answer(), self.hook.answer()], [["1", "2"], ["3"]])

    def test_throttle(self) -> None:
        """Batches are limited: some at once, then a number in a second."""
        self.make(max_size=1, qps=2.0, burst=2)
        self.put(1, 2, 3, 4)
        self.clock.advance(0)
        self.assertEqual([self.hook.answer() for _ in range(2)], [["1"], ["2"]])
        self.assertEqual(self.hook.asked, [])
        self.clock.advance(0.5)
        self.assertEqual(self.hook.answer(), ["3"])
        self.clock.advance(0.5)
        self.assertEqual(self.hook.answer(), ["4"])

    def test_failing(self) -> None:
        """A batch that fails for a time is posted again, ever more rarely, until it is stored."""
        with capturedLogs() as logged:
            self.put(1, 2, 3)
            self.clock.advance(0)
            delay = 10.0
            for _ in range(10):
                self.assertEqual(self.hook.answer(503), ["1", "2", "3"])
                self.clock.advance(min(delay, LONGEST_DELAY) - 0.1)
                self.assertEqual(self.hook.asked, [])
                self.clock.advance(0.1)
                delay *= FACTOR
            self.hook.answer()
        self.assertEqual((self.backend.waiting, self.backend.lost), (0, 0))
        texts = [formatEvent(each) or "" for each in logged]
        self.assertEqual(len(texts), 2)
        self.assertIn("the audit webhook failed: POST hook: answered 503: no; up to 10 events", texts[0])
        self.assertIn("answers again", texts[1])

    def test_rejected(self) -> None:
        """An event that the webhook rejects is dropped after a few attempts, and counted."""
        self.backend.put(event())
        self.clock.advance(30)
        for number in range(ATTEMPTS):
            self.hook.answer(400)
            self.clock.advance(LONGEST_DELAY * (number < ATTEMPTS - 1))
        self.assertEqual((self.hook.asked, self.backend.waiting, self.backend.lost), ([], 0, 1))

    def test_halves(self) -> None:
        """A rejected batch loses only the events that the webhook cannot take."""
        self.make(max_size=16)
        taken: list[str] = []
        with capturedLogs() as logged:
            self.put(*range(16))
            self.clock.advance(0)
            for _ in range(ATTEMPTS - 1):
                self.hook.answer(400)
                self.clock.advance(LONGEST_DELAY)
            while self.hook.asked:
                events = self.hook.asked[0][1]
                is_valid = "5" not in events
                self.hook.answer(200 if is_valid else 400)
                taken += events if is_valid else []
        self.assertEqual(sorted(map(int, taken)), [each for each in range(16) if each != 5])
        self.assertEqual((self.backend.waiting, self.backend.lost), (0, 1))
        texts = [formatEvent(each) or "" for each in logged]
        self.assertEqual(["answered 400" in texts[0], "lost so far: 1" in texts[1]], [True, True])
        self.assertIn("answers again", texts[2])
        self.assertEqual(len(texts), 3)

    def test_all_rejected(self) -> None:
        """The rejections of one batch have a limit, after which the rest is dropped."""
        self.make(max_size=64)
        self.put(*range(64))
        self.clock.advance(0)
        count = 0
        while self.hook.asked:
            self.hook.answer(400)
            self.clock.advance(LONGEST_DELAY * (count < ATTEMPTS - 1))
            count += 1
        self.assertEqual(count, ATTEMPTS - 1 + REJECTED_PIECES)
        self.assertEqual((self.backend.waiting, self.backend.lost), (0, 64))

    def test_retry_after(self) -> None:
        """A webhook can request a longer delay, within limits."""
        self.put(1, 2, 3)
        self.clock.advance(0)
        self.hook.answer(429, retry_after=30)
        self.clock.advance(29)
        self.assertEqual(self.hook.asked, [])
        self.clock.advance(1)
        self.hook.answer(429, retry_after=1e9)
        self.clock.advance(LONGEST_DELAY)
        self.assertEqual(len(self.hook.asked), 1)

    def test_flush(self) -> None:
        """A request that waits learns whether its event was stored; while it fails, at once."""
        self.make(max_wait=0.0)
        self.put(1)
        first = self.backend.flush()
        self.clock.advance(0)
        self.put(2)
        second = self.backend.flush()
        self.clock.advance(0)
        self.hook.answer()
        self.assertTrue(self.successResultOf(first))
        self.assertNoResult(second)
        self.hook.answer(500)
        self.assertFalse(self.successResultOf(second))
        self.put(3)
        self.assertFalse(self.successResultOf(self.backend.flush()))
        self.clock.advance(LONGEST_DELAY)
        self.hook.answer()
        self.hook.answer()
        self.put(4)
        fourth = self.backend.flush()
        self.clock.advance(WAIT_LIMIT)
        self.assertFalse(self.successResultOf(fourth))

    def test_stop(self) -> None:
        """A stop posts what is queued; it waits for a limited time, and counts the rest."""
        self.put(1)
        stopped = Deferred.fromCoroutine(self.backend.stop())
        self.assertEqual(self.hook.answer(), ["1"])
        self.clock.pump([0.1] * 2)
        self.successResultOf(stopped)
        self.assertTrue(self.hook.closed)
        self.assertEqual((self.backend.lost, self.clock.getDelayedCalls()), (0, []))
        self.make(max_size=3)
        self.put(1, 2, 3, 4)
        with capturedLogs() as logged:
            stopped = Deferred.fromCoroutine(self.backend.stop())
            self.clock.pump([0.1] * int(STOP_TIMEOUT * 10 + 2))
        self.successResultOf(stopped)
        self.assertIn("the last 4 events are lost", formatEvent(logged[0]) or "")
        self.put(5)
        self.assertEqual((self.backend.lost, self.clock.getDelayedCalls()), (5, []))
