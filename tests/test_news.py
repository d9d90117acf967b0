"""Tests of `tower.news`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.news import DELAY, MANY, News


class NewsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Collect what is written."""
        self.clock = Clock()
        self.events: list[LogEvent] = []
        observer: Any = self.events.append
        self.news = News(self.clock, Logger(namespace="x", observer=observer))

    @property
    def lines(self) -> list[str]:
        """What was written so far."""
        return [formatEvent(event) for event in self.events]

    def test_in_a_row(self) -> None:
        """Lines are written together, in order, soon, with their fields."""
        self.news.tell("{who} came", who="a")
        self.clock.advance(DELAY / 2)
        self.news.tell("{who} came", who="b")
        self.assertEqual(self.lines, [])
        self.clock.advance(DELAY / 2)
        self.assertEqual(self.lines, ["a came", "b came"])
        self.assertEqual(self.events[0]["who"], "a")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_many(self) -> None:
        """No more than a number wait."""
        for number in range(MANY + 1):
            self.news.tell("{number}", number=number)
        self.assertEqual(self.lines, [str(number) for number in range(MANY)])
        self.clock.advance(DELAY)
        self.assertEqual(len(self.lines), MANY + 1)

    def test_now(self) -> None:
        """What waits can be written at once, and then nothing is left behind."""
        self.news.tell("last words")
        self.news.write()
        self.news.write()
        self.assertEqual(self.lines, ["last words"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
