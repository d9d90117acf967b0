"""Tests of `tower.conch.transport.limits`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.limits import TokenBucket


class TokenBucketTests(SynchronousTestCase):
    """Allowance."""

    def taken(self, allowance: TokenBucket, now: float, earned: float = 0.0) -> int:
        """Return how many are allowed, at one time, up to the first that is not."""
        count = 0
        while allowance.take(now, earned):
            count += 1
            self.assertLess(count, 100)
        return count

    def test_at_once(self) -> None:
        """The burst is allowed at once, and no more."""
        self.assertEqual(self.taken(TokenBucket(10, 1.0, 5.0), 5.0), 10)

    def test_by_time(self) -> None:
        """Time adds tokens; denied requests count, too."""
        allowance = TokenBucket(10, 2.0, 0.0)
        self.taken(allowance, 0.0)
        self.assertFalse(allowance.take(0.5))
        self.assertTrue(allowance.take(1.5))
        self.assertEqual(self.taken(allowance, 1000.0), 10)

    def test_earned(self) -> None:
        """Earned tokens count like those of time, and are limited likewise."""
        allowance = TokenBucket(10, 1.0, 0.0)
        for _ in range(50):
            self.assertTrue(allowance.take(0.0, 1.0))
        self.assertTrue(allowance.take(0.0, 0.5))
        self.assertTrue(allowance.take(0.0, 1000.0))
        self.assertEqual(self.taken(allowance, 0.0), 9)
