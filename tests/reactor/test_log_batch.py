"""Tests of `tower.reactor.log_batch`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, LogLevel, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.log_batch import DELAY, FEW, MANY, PERIOD, LogBatch, Summary


class NewsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Collect what is written."""
        self.clock = Clock()
        self.events: list[LogEvent] = []
        observer: Any = self.events.append
        self.news = LogBatch(self.clock, Logger(namespace="x", observer=observer))

    @property
    def lines(self) -> list[str]:
        """What was written so far."""
        return [formatEvent(event) for event in self.events]

    def test_in_a_row(self) -> None:
        """Lines are written together, in order, soon, with their fields."""
        self.news.info("{who} came", who="a")
        self.clock.advance(DELAY / 2)
        self.news.info("{who} came", who="b")
        self.assertEqual(self.lines, [])
        self.clock.advance(DELAY / 2)
        self.assertEqual(self.lines, ["a came", "b came"])
        self.assertEqual(self.events[0]["who"], "a")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_many(self) -> None:
        """No more than a number wait."""
        for number in range(MANY + 1):
            self.news.info("{number}", number=number)
        self.assertEqual(self.lines, [str(number) for number in range(MANY)])
        self.clock.advance(DELAY)
        self.assertEqual(len(self.lines), MANY + 1)

    def test_now(self) -> None:
        """What waits can be written at once, and then nothing is left behind."""
        self.news.info("last words")
        self.news.write()
        self.news.write()
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
        """Have doors shut."""
        for number in numbers:
            self.summary.log("doors were shut", "door {number} shut", number=number)

    def test_few(self) -> None:
        """What happens now and then is written at once, as it is, and nothing follows."""
        for _ in range(3):
            self.shut(*range(FEW))
            self.assertEqual(self.taken(), [f"door {number} shut" for number in range(FEW)])
            self.clock.advance(PERIOD)
            self.clock.advance(PERIOD)
            self.assertEqual(self.clock.getDelayedCalls(), [])
            self.assertEqual(self.taken(), [])

    def test_many(self) -> None:
        """Of many there are a few lines in each second, their number, and the last of them."""
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
        """What is of another kind is counted by itself, and keeps its level."""
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
        """What strangers say is never taken for a format."""
        for _ in range(FEW + 1):
            self.summary.log("doors were shut", "door {name} shut", name="{count} {0.__class__}")
        self.clock.advance(PERIOD)
        line = "door {count} {0.__class__} shut"
        summed = f"1 more doors were shut in the last 1 s, the last of them: {line}"
        self.assertEqual(self.taken(), [line] * FEW + [summed])

    def test_now(self) -> None:
        """What was counted can be written at once, and then nothing is left behind."""
        self.shut(*range(FEW + 2))
        self.summary.write()
        self.summary.write()
        self.assertEqual(len(self.taken()), FEW + 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
