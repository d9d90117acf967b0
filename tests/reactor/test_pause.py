"""Tests of `tower.reactor.pause`."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.pause import Pause


class PauseTests(SynchronousTestCase):
    """One pause."""

    def setUp(self) -> None:
        """Begin a pause of 5 s."""
        self.clock = Clock()
        self.pause = Pause(self.clock)
        self.waiting = Deferred.fromCoroutine(self.pause.wait(5.0))

    def test_time(self) -> None:
        """It ends after its time."""
        self.clock.advance(4.9)
        self.assertNoResult(self.waiting)
        self.clock.advance(0.2)
        self.assertIsNone(self.successResultOf(self.waiting))

    def test_end(self) -> None:
        """It can be ended early, more than once, and leaves no timer."""
        self.pause.end()
        self.pause.end()
        self.assertIsNone(self.successResultOf(self.waiting))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancel(self) -> None:
        """A canceled pause raises, and leaves no timer."""
        self.pause.cancel()
        self.failureResultOf(self.waiting, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_again(self) -> None:
        """Without a pause, its end does nothing; the next one has its whole time."""
        self.pause.end()
        self.pause.end()
        self.pause.cancel()
        again = Deferred.fromCoroutine(self.pause.wait(1.0))
        self.clock.advance(0.9)
        self.assertNoResult(again)
        self.clock.advance(0.2)
        self.successResultOf(again)
