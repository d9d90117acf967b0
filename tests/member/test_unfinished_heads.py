"""Tests of `tower.member.unfinished_heads`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.streams import FakeStream
from tower.member.unfinished_heads import CAPACITY, HEAD_TIMEOUT, UnfinishedHeads
from tower.net.budget import Budget


class UnfinishedTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create empty limits."""
        self.clock, self.budget = Clock(), Budget(8 * CAPACITY)
        self.unfinished = UnfinishedHeads(self.clock, self.budget)
        self.streams = [FakeStream() for _ in range(4)]

    def advance(self, seconds: float) -> None:
        """Let time pass, and the reactor look at its sockets once more."""
        self.clock.advance(seconds)
        self.clock.advance(0)

    def keep(self, stream: FakeStream, size: int) -> bool:
        """Keep an incomplete head of *stream*."""
        return self.unfinished.keep(stream, size, stream.too_slow)

    def nothing_left(self) -> None:
        """Check that all is given back."""
        self.assertEqual((self.unfinished.held, self.unfinished.unused, self.budget.lent), (0, 0, 0))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unused(self) -> None:
        """A stream counts as unused until its first head is complete, or it is closed."""
        for stream in self.streams:
            self.unfinished.opened(stream)
        self.assertEqual(self.unfinished.unused, 4)
        self.keep(self.streams[0], 10)
        self.assertEqual(self.unfinished.unused, 4)
        for stream in self.streams:
            self.unfinished.done(stream)
            self.unfinished.done(stream)
        self.nothing_left()

    def test_capacity(self) -> None:
        """The size of all incomplete heads is limited; each stream counts once."""
        first, second, third, _ = self.streams
        self.assertTrue(self.keep(first, CAPACITY // 2))
        self.assertTrue(self.keep(first, CAPACITY - 10))
        self.assertFalse(self.keep(second, 11))
        self.assertTrue(self.keep(second, 10))
        self.assertFalse(self.keep(third, 1))
        self.assertEqual((self.unfinished.held, self.budget.lent), (CAPACITY, CAPACITY))
        self.unfinished.done(first)
        self.assertTrue(self.keep(third, 1))
        for stream in self.streams:
            self.unfinished.done(stream)
        self.nothing_left()

    def test_small_budget(self) -> None:
        """Heads use a small part of a small budget, and nothing of a spent one."""
        self.budget = Budget(8000)
        self.unfinished = UnfinishedHeads(self.clock, self.budget)
        self.assertFalse(self.keep(self.streams[0], 1001))
        self.assertTrue(self.keep(self.streams[0], 1000))
        self.unfinished.done(self.streams[0])
        self.assertTrue(self.budget.borrow(7500))
        self.assertFalse(self.keep(self.streams[0], 501))
        self.budget.give_back(7500)
        self.nothing_left()

    def test_patience(self) -> None:
        """A head times out after its first byte, regardless of further ones; its stream is notified once."""
        first, second, third, silent = self.streams
        self.unfinished.opened(silent)
        self.keep(first, 1)
        self.advance(HEAD_TIMEOUT / 2)
        self.keep(first, 2)
        self.keep(second, 1)
        self.keep(third, 1)
        self.advance(HEAD_TIMEOUT / 2 - 0.01)
        self.assertEqual([stream.late for stream in self.streams], [0, 0, 0, 0])
        self.advance(0.02)
        self.assertEqual([stream.late for stream in self.streams], [1, 0, 0, 0])
        self.unfinished.done(third)
        self.advance(HEAD_TIMEOUT)
        self.assertEqual([stream.late for stream in self.streams], [1, 1, 0, 0])
        self.unfinished.done(silent)
        self.nothing_left()
