"""Tests of the two times."""

from __future__ import annotations

import time

from twisted.internet.base import ReactorBase
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tower.reactor.clock import TimeOfDay, count_steadily


class Timing(ReactorBase):
    """A reactor that makes calls and waits for nothing.

    :ivar day: the time of day that it begins with, s.
    """

    day = 1_800_000_000.0

    def __init__(self) -> None:
        self.seconds = lambda: self.day
        super().__init__()

    def installWaker(self) -> None:
        """See ReactorBase: no thread to wake."""


class SteadyTests(SynchronousTestCase):
    """A reactor whose calls no setting of the clock moves."""

    def setUp(self) -> None:
        """Make a reactor with one pending call."""
        self.reactor = Timing()
        self.called: list[str] = []
        self.early = self.reactor.callLater(3600, self.called.append, "early")
        count_steadily(self.reactor)

    def test_counts(self) -> None:
        """It returns the time since a fixed moment."""
        before = time.monotonic()
        self.assertTrue(before <= self.reactor.seconds() <= time.monotonic())

    def test_new_calls(self) -> None:
        """A call is made when its time has passed, and not before."""
        self.reactor.callLater(0, self.called.append, "now")
        self.reactor.callLater(3600, self.called.append, "later")
        self.reactor.runUntilCurrent()
        self.assertEqual(self.called, ["now"])

    def test_old_calls(self) -> None:
        """A call that waited before waits for as long as it should, also when it is put off."""
        left = self.early.getTime() - self.reactor.seconds()
        self.assertTrue(3590 < left <= 3600, left)
        self.early.reset(1800)
        left = self.early.getTime() - self.reactor.seconds()
        self.assertTrue(1790 < left <= 1800, left)
        self.early.reset(0)
        self.reactor.runUntilCurrent()
        self.assertEqual(self.called, ["early"])

    def test_twice(self) -> None:
        """Once more changes nothing."""
        due = self.early.getTime()
        count_steadily(self.reactor)
        self.assertLess(abs(self.early.getTime() - due), 10)


class TimeOfDayTests(SynchronousTestCase):
    """The time of day, with another clock's calls."""

    def test_time(self) -> None:
        """It counts from the epoch, whatever the reactor counts from."""
        clock = Clock()
        day = TimeOfDay(clock)
        verifyObject(IReactorTime, day)
        before = time.time()
        self.assertTrue(before <= day.seconds() <= time.time())

    def test_calls(self) -> None:
        """Calls are the reactor's."""
        clock = Clock()
        called: list[int] = []
        call = TimeOfDay(clock).callLater(2, called.append, 1)
        self.assertEqual(TimeOfDay(clock).getDelayedCalls(), [call])
        clock.advance(2)
        self.assertEqual(called, [1])
