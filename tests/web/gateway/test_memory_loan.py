"""Tests for `tower.web.gateway.memory_loan`."""

from __future__ import annotations

from typing import Any

from attrs import define
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.net.budget import Budget, UnauthenticatedBudget
from tower.web.gateway.memory_loan import ALLOWANCE, Loan


@define(eq=False)
class FakeBorrower:
    """A connection that can be evicted."""

    proven: bool = False
    evicted: bool = False

    def evict(self) -> None:
        """Record it."""
        self.evicted = True


class LoanTests(SynchronousTestCase):
    """A loan, from either budget."""

    def setUp(self) -> None:
        """Make two budgets of 1,000 B."""
        self.budget, self.unproven = Budget(1_000), UnauthenticatedBudget(1_000, Clock().seconds)
        self.loan = Loan(self.budget, self.unproven)
        self.borrower: Any = FakeBorrower()

    def cover(self, size: int) -> bool:
        """Let the borrower keep *size* B beyond the allowance."""
        return self.loan.cover(self.borrower, ALLOWANCE + size)

    def check(self, lent: int, held: int) -> None:
        """Check what both budgets and the loan have recorded."""
        self.assertEqual((self.budget.lent, self.unproven.held), (lent, held))
        self.assertEqual(self.loan.size, lent + held)

    def test_free(self) -> None:
        """The allowance requires no loan."""
        for proven in (False, True):
            self.borrower.proven = proven
            self.assertTrue(self.cover(0))
            self.assertTrue(self.loan.cover(self.borrower, 0))
            self.check(0, 0)

    def test_stranger(self) -> None:
        """The loan of an unauthenticated connection follows the kept bytes."""
        for size in (300, 1_000, 200, 0):
            self.assertTrue(self.cover(size))
            self.check(0, size)

    def test_stranger_with_too_much(self) -> None:
        """An unauthenticated connection that keeps too much loses its loan, and is notified once."""
        self.assertTrue(self.cover(300))
        self.assertFalse(self.cover(1_001))
        self.check(0, 0)
        self.assertFalse(self.borrower.evicted)

    def test_called_in(self) -> None:
        """A loan that was taken back for another is not given back again."""
        self.assertTrue(self.cover(900))
        self.assertTrue(self.unproven.hold(FakeBorrower(), 200))
        self.assertTrue(self.borrower.evicted)
        self.loan.evicted()
        self.assertTrue(self.cover(0))
        self.assertEqual((self.loan.size, self.unproven.held), (0, 200))

    def test_known(self) -> None:
        """An authenticated connection borrows from the process's budget; a failed request changes nothing."""
        self.borrower.proven = True
        for size in (300, 1_000, 200):
            self.assertTrue(self.cover(size))
            self.check(size, 0)
        self.assertFalse(self.cover(1_001))
        self.check(200, 0)
        self.assertTrue(self.cover(0))
        self.check(0, 0)

    def test_moves(self) -> None:
        """A loan that is repaid moves to the other budget, or back, with the next request."""
        for proven in (False, True, False):
            self.borrower.proven = proven
            self.assertTrue(self.cover(500))
            self.check(*((500, 0) if proven else (0, 500)))
            self.loan.repay(self.borrower)
            self.check(0, 0)
        self.loan.repay(self.borrower)
        self.check(0, 0)
