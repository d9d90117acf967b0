"""Long work in pieces."""

from __future__ import annotations

import operator

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish
from tests.cloud.pumped import CountingClock
from tower.cloud.pieces import PIECE, in_pieces


class PiecesTests(SynchronousTestCase):
    """What is done, and when others have their turn."""

    def test_all(self) -> None:
        """All is done, in its order, a piece at a time."""
        for count, turns in ((0, 0), (PIECE - 1, 0), (PIECE + 1, 1), (10 * PIECE - 1, 9)):
            clock = CountingClock()
            self.assertEqual(finish(clock, in_pieces(clock, range(count), str)), list(map(str, range(count))))
            self.assertEqual(clock.turns, turns)

    def test_waits(self) -> None:
        """Nothing of the next piece is looked at before others had their turn."""
        clock = Clock()
        left = iter(range(25))
        doing = Deferred.fromCoroutine(in_pieces(clock, left, float, 10))
        self.assertEqual(operator.length_hint(left), 15)
        clock.advance(0)
        clock.advance(0)
        self.assertEqual(len(self.successResultOf(doing)), 25)

    def test_given_up(self) -> None:
        """It can be given up between two pieces, and leaves nothing."""
        clock = Clock()
        doing = Deferred.fromCoroutine(in_pieces(clock, range(1000), float))
        doing.cancel()
        self.failureResultOf(doing, CancelledError)
        self.assertEqual(clock.getDelayedCalls(), [])
