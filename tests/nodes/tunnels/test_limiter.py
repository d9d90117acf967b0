"""Tests of `tower.nodes.tunnels.limiter`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.nodes.tunnels.limiter import Limiter, Permit


class LimiterTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Room for two permits."""
        self.clock = Clock()
        self.limiter = Limiter(self.clock, most=2, patience=2.0)
        self.began: list[str] = []

    def ask(self, name: str) -> Permit:
        """Queue up."""
        permit = Permit(self.limiter, lambda: self.began.append(name))
        permit.ask()
        return permit

    def test_so_many_at_once(self) -> None:
        """The third begins when one of the first two has ended."""
        first, _second, _third = self.ask("a"), self.ask("b"), self.ask("c")
        self.assertEqual(self.began, ["a", "b"])
        first.end()
        self.assertEqual(self.began, ["a", "b", "c"])

    def test_first_come_first_served(self) -> None:
        """Permits start in the order of the requests."""
        permits = [self.ask(name) for name in "abcdef"]
        for permit in permits:
            permit.end()
        self.assertEqual("".join(self.began), "abcdef")

    def test_slow_ones_do_not_delay_others(self) -> None:
        """After some time a permit goes to the next one, and is not given twice when it ends after all."""
        slow = [self.ask("a"), self.ask("b")]
        for name in "cdef":
            self.ask(name)
        self.clock.advance(2.0)
        self.assertEqual("".join(self.began), "abcd")
        for permit in slow:
            permit.end()
        self.assertEqual("".join(self.began), "abcd")

    def test_two_hundred_that_do_not_answer(self) -> None:
        """All permits have started before the next listing, with any number of silent nodes."""
        self.limiter = Limiter(self.clock)
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
        """A permit that is over before its beginning returns makes room for the next."""
        permits: list[Permit] = []

        def begin() -> None:
            self.began.append("x")
            permits[-1].end()

        for _ in range(5):
            permits.append(Permit(self.limiter, begin))
            permits[-1].ask()
        self.assertEqual(self.began, ["x"] * 5)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_is_left(self) -> None:
        """Ended permits leave no timer."""
        for permit in [self.ask(name) for name in "abc"]:
            permit.end()
            permit.end()
        self.assertEqual(self.clock.getDelayedCalls(), [])
