"""Tests of `tower.nodes.tunnels.limiter`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.nodes.tunnels.limiter import Limiter, Permit


class TurnsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Room for two permits."""
        self.clock = Clock()
        self.turns = Limiter(self.clock, most=2, patience=2.0)
        self.began: list[str] = []

    def ask(self, name: str) -> Permit:
        """Queue up."""
        turn = Permit(self.turns, lambda: self.began.append(name))
        turn.ask()
        return turn

    def test_so_many_at_once(self) -> None:
        """The third begins when one of the first two has ended."""
        first, _second, _third = self.ask("a"), self.ask("b"), self.ask("c")
        self.assertEqual(self.began, ["a", "b"])
        first.end()
        self.assertEqual(self.began, ["a", "b", "c"])

    def test_first_come_first_served(self) -> None:
        """Permits start in the order of the requests."""
        turns = [self.ask(name) for name in "abcdef"]
        for turn in turns:
            turn.end()
        self.assertEqual("".join(self.began), "abcdef")

    def test_the_slow_keep_nobody_waiting(self) -> None:
        """After some time a turn goes to the next one, and is not given twice when it ends after all."""
        slow = [self.ask("a"), self.ask("b")]
        for name in "cdef":
            self.ask(name)
        self.clock.advance(2.0)
        self.assertEqual("".join(self.began), "abcd")
        for turn in slow:
            turn.end()
        self.assertEqual("".join(self.began), "abcd")

    def test_two_hundred_that_do_not_answer(self) -> None:
        """All permits have started before the next listing, with any number of silent nodes."""
        self.turns = Limiter(self.clock)
        for number in range(200):
            self.ask(str(number))
        self.clock.pump([1.0] * 13)
        self.assertEqual(len(self.began), 200)

    def test_leaving_the_queue(self) -> None:
        """A permit that ends before its start does not start."""
        first, _second, third = self.ask("a"), self.ask("b"), self.ask("c")
        third.end()
        first.end()
        self.assertEqual(self.began, ["a", "b"])

    def test_ending_while_it_begins(self) -> None:
        """A turn that is over before its beginning returns makes room for the next."""
        turns: list[Permit] = []

        def begin() -> None:
            self.began.append("x")
            turns[-1].end()

        for _ in range(5):
            turns.append(Permit(self.turns, begin))
            turns[-1].ask()
        self.assertEqual(self.began, ["x"] * 5)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_is_left(self) -> None:
        """Ended turns leave no timer."""
        for turn in [self.ask(name) for name in "abc"]:
            turn.end()
            turn.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
