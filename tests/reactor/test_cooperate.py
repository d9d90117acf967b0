"""Long work in pieces."""

from __future__ import annotations

import itertools
import operator

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish
from tests.cloud.pumped import CountingClock
from tower.reactor.cooperate import PIECE, map_cooperatively


class PiecesTests(SynchronousTestCase):
    """Results, and when other work runs."""

    def test_all(self) -> None:
        """All is done, in its order, a piece at a time."""
        for count, turns in ((0, 0), (PIECE - 1, 0), (PIECE + 1, 1), (10 * PIECE - 1, 9)):
            clock = CountingClock()
            self.assertEqual(
                finish(clock, map_cooperatively(clock, range(count), str)), list(map(str, range(count)))
            )
            self.assertEqual(clock.turns, turns)

    def test_waits(self) -> None:
        """Nothing of the next piece is looked at before others had their turn."""
        clock = Clock()
        left = iter(range(25))
        doing = Deferred.fromCoroutine(map_cooperatively(clock, left, float, 10))
        self.assertEqual(operator.length_hint(left), 15)
        clock.advance(0)
        clock.advance(0)
        self.assertEqual(len(self.successResultOf(doing)), 25)

    def test_given_up(self) -> None:
        """It can be given up between two pieces, and leaves nothing."""
        clock = Clock()
        doing = Deferred.fromCoroutine(map_cooperatively(clock, range(1000), float))
        doing.cancel()
        self.failureResultOf(doing, CancelledError)
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_several(self) -> None:
        """Only one of the lists under work continues per iteration; a cancelled one delays no other."""
        clock = Clock()
        done: list[str] = []
        several = [
            Deferred.fromCoroutine(map_cooperatively(clock, itertools.repeat(name, 15), done.append, 10))
            for name in "abc"
        ]
        # # A list that starts while others are under work waits at once.
        self.assertEqual(done, ["a"] * 10)
        self.assertEqual(len(clock.getDelayedCalls()), 1)
        several[1].cancel()
        self.failureResultOf(several[1], CancelledError)
        while clock.getDelayedCalls():
            before = len(done)
            call = clock.calls.pop(0)
            call.called = 1
            call.func(*call.args, **call.kw)
            self.assertLessEqual(len(done) - before, 10)
        self.assertEqual(done, ["a"] * 15 + ["c"] * 15)
