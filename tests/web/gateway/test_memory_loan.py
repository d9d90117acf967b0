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
    """A connection that may be ended for another."""

    proven: bool = False
    evicted: bool = False

    def evict(self) -> None:
        """Note it."""
        self.evicted = True


class LoanTests(SynchronousTestCase):
    """One loan, from either budget."""

    def setUp(self) -> None:
        """Have 1,000 B in each."""
        self.budget, self.unproven = Budget(1_000), UnauthenticatedBudget(1_000, Clock().seconds)
        self.loan = Loan(self.budget, self.unproven)
        self.borrower: Any = FakeBorrower()

    def cover(self, size: int) -> bool:
        """Have the borrower keep so much beyond what is free."""
        return self.loan.cover(self.borrower, ALLOWANCE + size)

    def check(self, lent: int, held: int) -> None:
        """Check what either budget has lent, and that the loan knows it."""
        self.assertEqual((self.budget.lent, self.unproven.held), (lent, held))
        self.assertEqual(self.loan.size, lent + held)

    def test_free(self) -> None:
        """A little needs no loan."""
        for proven in (False, True):
            self.borrower.proven = proven
            self.assertTrue(self.cover(0))
            self.assertTrue(self.loan.cover(self.borrower, 0))
            self.check(0, 0)

    def test_stranger(self) -> None:
        """A stranger's loan follows what he keeps."""
        for size in (300, 1_000, 200, 0):
            self.assertTrue(self.cover(size))
            self.check(0, size)

    def test_stranger_with_too_much(self) -> None:
        """A stranger who keeps too much himself has no loan any more, and is told so once."""
        self.assertTrue(self.cover(300))
        self.assertFalse(self.cover(1_001))
        self.check(0, 0)
        self.assertFalse(self.borrower.evicted)

    def test_called_in(self) -> None:
        """A loan that was called in for another is not given back again."""
        self.assertTrue(self.cover(900))
        self.assertTrue(self.unproven.hold(FakeBorrower(), 200))
        self.assertTrue(self.borrower.evicted)
        self.loan.evicted()
        self.assertTrue(self.cover(0))
        self.assertEqual((self.loan.size, self.unproven.held), (0, 200))

    def test_known(self) -> None:
        """Anybody else's comes from the process's budget; when that has no more, what is on loan stays so."""
        self.borrower.proven = True
        for size in (300, 1_000, 200):
            self.assertTrue(self.cover(size))
            self.check(size, 0)
        self.assertFalse(self.cover(1_001))
        self.check(200, 0)
        self.assertTrue(self.cover(0))
        self.check(0, 0)

    def test_moves(self) -> None:
        """A loan that is repaid moves to the other budget, or back, when it is looked at next."""
        for proven in (False, True, False):
            self.borrower.proven = proven
            self.assertTrue(self.cover(500))
            self.check(*((500, 0) if proven else (0, 500)))
            self.loan.repay(self.borrower)
            self.check(0, 0)
        self.loan.repay(self.borrower)
        self.check(0, 0)
