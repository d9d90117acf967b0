"""Tests for `tower.tunnels.patience`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.tunnels.patience import MOST_CLIENTS, REMEMBERED, Patience


class PatienceTests(SynchronousTestCase):
    """One period of waiting for each client and cluster."""

    def setUp(self) -> None:
        """Grant 5 s."""
        self.clock = Clock()
        self.patience = Patience(5.0, self.clock.seconds)

    def test_once(self) -> None:
        """The period begins with the first request, and later requests have the rest of it."""
        self.assertEqual(self.patience.left("alpha", "jane"), 5.0)
        self.clock.advance(3)
        self.assertEqual(self.patience.left("alpha", "jane"), 2.0)
        self.clock.advance(3)
        self.assertEqual(self.patience.left("alpha", "jane"), 0.0)

    def test_apart(self) -> None:
        """Another client, or the same one for another cluster, has its own period."""
        self.patience.left("alpha", "jane")
        self.clock.advance(5)
        self.assertEqual(self.patience.left("alpha", "joe"), 5.0)
        self.assertEqual(self.patience.left("beta", "jane"), 5.0)

    def test_spent(self) -> None:
        """Time that the request has waited already counts."""
        self.assertEqual(self.patience.left("alpha", "jane", 3), 2.0)
        self.assertEqual(self.patience.left("alpha", "joe", 9), 0.0)

    def test_spend(self) -> None:
        """A client that has waited elsewhere does not wait again."""
        self.patience.spend("alpha", "jane")
        self.assertEqual(self.patience.left("alpha", "jane"), 0.0)
        self.assertEqual(self.patience.left("alpha", "joe"), 5.0)

    def test_renewed(self) -> None:
        """Once the cluster was reached, clients wait again."""
        self.patience.left("alpha", "jane")
        self.clock.advance(5)
        self.patience.renew("alpha")
        self.assertEqual(self.patience.left("alpha", "jane"), 5.0)

    def test_bounded(self) -> None:
        """A limited number of clients is remembered, and none for ever."""
        for number in range(MOST_CLIENTS):
            self.patience.left("alpha", str(number))
        self.assertEqual(self.patience.left("alpha", "jane"), 0.0)
        self.clock.advance(REMEMBERED)
        self.patience.sweep()
        self.assertEqual(self.patience.left("alpha", "jane"), 0.0)
        self.clock.advance(6)
        self.patience.sweep()
        self.assertEqual(self.patience.left("alpha", "jane"), 5.0)
