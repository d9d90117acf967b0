"""Tests of `tower.net.budget`: what strangers may keep; for the rest see `tests.conch.connection.test_window`."""

from __future__ import annotations

import random

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.net.budget import UnauthenticatedBudget


class FakeStranger:
    """One who goes when he has to."""

    def __init__(self) -> None:
        self.evicted = 0

    def evict(self) -> None:
        """Go."""
        self.evicted += 1


class UnauthenticatedBudgetTests(SynchronousTestCase):
    """A budget of 10,000 B."""

    def setUp(self) -> None:
        """Make it."""
        self.clock = Clock()
        self.budget = UnauthenticatedBudget(10_000, self.clock.seconds)

    def come(self, size: int) -> FakeStranger:
        """Have somebody come who keeps *size* bytes."""
        stranger = FakeStranger()
        self.assertEqual(self.budget.hold(stranger, size), True)
        return stranger

    def test_counts(self) -> None:
        """What is kept is counted as it grows and shrinks, down to nothing."""
        one, two = self.come(1000), self.come(2000)
        self.budget.hold(one, 4000)
        self.assertEqual(self.budget.held, 6000)
        self.budget.hold(one, 0)
        self.budget.hold(one, 0)
        self.budget.hold(two, 1)
        self.assertEqual(self.budget.held, 1)
        self.budget.hold(two, 0)
        self.assertEqual((self.budget.held, self.budget.evicted), (0, 0))

    def test_the_largest_goes(self) -> None:
        """Of those that just came the largest goes, the newcomer stays."""
        small, large = self.come(1000), self.come(8000)
        newcomer = self.come(3000)
        self.assertEqual((small.evicted, large.evicted, newcomer.evicted), (0, 1, 0))
        self.assertEqual((self.budget.held, self.budget.evicted), (4000, 1))

    def test_the_oldest_goes(self) -> None:
        """Among thousands that keep little for long, one who keeps more for a short time stays."""
        olds = []
        for _ in range(10):
            olds.append(self.come(990))
            self.clock.advance(1.0)
        newcomer = self.come(3000)
        self.assertEqual([old.evicted for old in olds], [1, 1, 1] + [0] * 7)
        self.assertEqual(newcomer.evicted, 0)

    def test_who_grows_keeps_his_age(self) -> None:
        """To send a little more now and then makes nobody younger."""
        old = self.come(1000)
        self.clock.advance(5.0)
        self.budget.hold(old, 1100)
        self.come(8000)
        self.come(1500)
        self.assertEqual(old.evicted, 1)

    def test_the_newcomer_alone_is_too_large(self) -> None:
        """One who wants more than there is has to go himself, and is told by the answer."""
        greedy = FakeStranger()
        self.assertFalse(self.budget.hold(greedy, 10_001))
        self.assertEqual((greedy.evicted, self.budget.held), (0, 0))

    def test_one_goes_with_another(self) -> None:
        """The end of one may be the end of others."""
        budget, gone = self.budget, []
        first = self.come(5000)

        class Leader(FakeStranger):
            def evict(self) -> None:
                gone.append(self)
                budget.hold(self, 0)
                budget.hold(first, 0)

        budget.hold(Leader(), 5000)
        self.clock.advance(1.0)
        self.come(5000)
        self.come(5000)
        self.assertLessEqual(budget.held, 10_000)

    def test_never_more(self) -> None:
        """Whatever happens, the sum is right and within bounds, and nobody is sent away twice."""
        chance = random.Random(1)
        everybody: dict[FakeStranger, int] = {}
        for _ in range(5000):
            self.clock.advance(chance.random())
            stranger = (
                chance.choice(list(everybody)) if everybody and chance.random() < 0.6 else FakeStranger()
            )
            size = chance.choice((0, 1, 50, 700, 3000))
            everybody[stranger] = size
            if not self.budget.hold(stranger, size):
                del everybody[stranger]
            for each in [each for each in everybody if each.evicted]:
                self.assertEqual(each.evicted, 1)
                del everybody[each]
            self.assertEqual(self.budget.held, sum(everybody.values()))
            self.assertLessEqual(self.budget.held, 10_000)
