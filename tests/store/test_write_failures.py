"""Tests of `tower.store.write_failures`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, eventAsText
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tower.store.records import StoreFailed, StoreStopped
from tower.store.write_failures import REMINDER, WriteFailures


class WriteFailuresTests(SynchronousTestCase):
    """The lines in the log."""

    def setUp(self) -> None:
        """Start without failures."""
        self.clock: Any = Clock()
        self.failures = WriteFailures(self.clock, "events")

    def fail_once(self) -> None:
        """Report a failed write."""
        self.failures.failed(Failure(StoreFailed("no space left: free space on the disk")))

    def test_lines(self) -> None:
        """Failures have a line a minute with their number, and the end has one."""
        with capturedLogs() as events:
            for _ in range(1000):
                self.fail_once()
            self.clock.advance(REMINDER)
            self.fail_once()
            self.failures.worked()
            self.failures.worked()
            self.fail_once()
        failed = (
            "events are not up to date, {} writes failed; retrying: no space left: free space on the disk"
        )
        self.assertEqual(
            [eventAsText(event, includeTimestamp=False, includeSystem=False) for event in events],
            [failed.format(1), failed.format(1001), "events are written again", failed.format(1)],
        )

    def test_stopped(self) -> None:
        """Writes after the store's stop, as of a proxy that lost its Lease, are not logged."""
        with capturedLogs() as events:
            self.failures.failed(Failure(StoreStopped()))
        self.assertEqual(events, [])

    def test_defects(self) -> None:
        """Another error has a traceback."""
        self.failures.failed(Failure(RuntimeError("a defect")))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
