"""Memory of unauthenticated clients; `tests.conch.connection.test_window` tests the other budget."""

from __future__ import annotations

import random

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.net.budget import UnauthenticatedBudget


class FakeStranger:
    """A holder that releases everything on eviction."""

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
        """Add a holder of *size* bytes."""
        stranger = FakeStranger()
        self.assertEqual(self.budget.hold(stranger, size), True)
        return stranger

    def test_counts(self) -> None:
        """Sizes are summed as they grow and shrink, down to 0."""
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
        """Among new holders, the largest is evicted, and the newest stays."""
        small, large = self.come(1000), self.come(8000)
        newcomer = self.come(3000)
        self.assertEqual((small.evicted, large.evicted, newcomer.evicted), (0, 1, 0))
        self.assertEqual((self.budget.held, self.budget.evicted), (4000, 1))

    def test_the_oldest_goes(self) -> None:
        """Among thousands that hold little for long, one that holds more for a short time stays."""
        olds = []
        for _ in range(10):
            olds.append(self.come(990))
            self.clock.advance(1.0)
        newcomer = self.come(3000)
        self.assertEqual([old.evicted for old in olds], [1, 1, 1] + [0] * 7)
        self.assertEqual(newcomer.evicted, 0)

    def test_who_grows_keeps_his_age(self) -> None:
        """More bytes now and then do not reset a holder's age."""
        old = self.come(1000)
        self.clock.advance(5.0)
        self.budget.hold(old, 1100)
        self.come(8000)
        self.come(1500)
        self.assertEqual(old.evicted, 1)

    def test_the_newcomer_alone_is_too_large(self) -> None:
        """A holder that exceeds the limit alone must close itself, by the result."""
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
        """After any calls, the sum is right and within limits, and none is evicted twice."""
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
