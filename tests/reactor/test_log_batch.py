"""Tests of `tower.reactor.log_batch`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, LogLevel, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.log_batch import DELAY, FEW, MANY, PERIOD, LogBatch, Summary


class LogBatchTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Collect what is written."""
        self.clock = Clock()
        self.events: list[LogEvent] = []
        observer: Any = self.events.append
        self.batch = LogBatch(self.clock, Logger(namespace="x", observer=observer))

    @property
    def lines(self) -> list[str]:
        """Return the lines that were written so far."""
        return [formatEvent(event) for event in self.events]

    def test_in_a_row(self) -> None:
        """Lines are written together, in order, soon, with their fields."""
        self.batch.info("{name} came", name="a")
        self.clock.advance(DELAY / 2)
        self.batch.info("{name} came", name="b")
        self.assertEqual(self.lines, [])
        self.clock.advance(DELAY / 2)
        self.assertEqual(self.lines, ["a came", "b came"])
        self.assertEqual(self.events[0]["name"], "a")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_many(self) -> None:
        """No more than a number wait."""
        for number in range(MANY + 1):
            self.batch.info("{number}", number=number)
        self.assertEqual(self.lines, [str(number) for number in range(MANY)])
        self.clock.advance(DELAY)
        self.assertEqual(len(self.lines), MANY + 1)

    def test_now(self) -> None:
        """A batch can be written at once; no timer is left then."""
        self.batch.info("last words")
        self.batch.write()
        self.batch.write()
        self.assertEqual(self.lines, ["last words"])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class SummaryTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Collect what is written."""
        self.clock = Clock()
        self.events: list[LogEvent] = []
        observer: Any = self.events.append
        self.summary = Summary(self.clock, Logger(namespace="x", observer=observer))

    def taken(self) -> list[str]:
        """Return what was written since the last call."""
        lines = [formatEvent(event) for event in self.events]
        self.events.clear()
        return lines

    def shut(self, *numbers: int) -> None:
        """Log closed doors, by number."""
        for number in numbers:
            self.summary.log("doors were shut", "door {number} shut", number=number)

    def test_few(self) -> None:
        """Rare lines are written at once, unchanged, and without a summary."""
        for _ in range(3):
            self.shut(*range(FEW))
            self.assertEqual(self.taken(), [f"door {number} shut" for number in range(FEW)])
            self.clock.advance(PERIOD)
            self.clock.advance(PERIOD)
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.assertEqual(self.taken(), [])

    def test_many(self) -> None:
        """Frequent lines are summarized: a few per second, their number, and the last of them."""
        for _ in range(3):
            self.shut(*range(5000))
            self.assertEqual(self.taken(), [f"door {number} shut" for number in range(FEW)])
            self.clock.advance(PERIOD)
            summed = f"{5000 - FEW} more doors were shut in the last 1 s, the last of them: door 4999 shut"
            self.assertEqual(self.taken(), [summed])
        self.clock.advance(PERIOD)
        self.assertEqual(self.taken(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_kinds(self) -> None:
        """Each kind is counted separately and keeps its level."""
        self.shut(*range(FEW))
        for number in range(FEW + 2):
            self.summary.log("lights went out", "light {number} went out", level=LogLevel.warn, number=number)
        levels = [LogLevel.info] * FEW + [LogLevel.warn] * FEW
        self.assertEqual([event["log_level"] for event in self.events], levels)
        self.taken()
        self.clock.advance(PERIOD)
        self.assertEqual(self.events[0]["log_level"], LogLevel.warn)
        summed = f"2 more lights went out in the last 1 s, the last of them: light {FEW + 1} went out"
        self.assertEqual(self.taken(), [summed])

    def test_braces(self) -> None:
        """Text of unauthenticated peers is never interpreted as a format."""
        for _ in range(FEW + 1):
            self.summary.log("doors were shut", "door {name} shut", name="{count} {0.__class__}")
        self.clock.advance(PERIOD)
        line = "door {count} {0.__class__} shut"
        summed = f"1 more doors were shut in the last 1 s, the last of them: {line}"
        self.assertEqual(self.taken(), [line] * FEW + [summed])

    def test_now(self) -> None:
        """Summaries can be written at once; no timer is left then."""
        self.shut(*range(FEW + 2))
        self.summary.write()
        self.summary.write()
        self.assertEqual(len(self.taken()), FEW + 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
