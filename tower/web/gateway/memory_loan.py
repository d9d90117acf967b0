"""The memory that one connection borrows for bytes that it keeps.

An unauthenticated connection borrows from the small budget that all of them share, and may be evicted for
another one.  An authenticated one borrows from the process's budget, which evicts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.net.budget import Budget, UnauthenticatedBudget

if TYPE_CHECKING:
    from tower.web.gateway.user_session import UserConnection

#: Bytes that a connection may keep without borrowing, B.
ALLOWANCE = 4 * 1024


class Loan:
    """The loan of one connection, B; repay it before `UserConnection.proven` changes."""

    __slots__ = ("_budget", "_unproven", "size")

    def __init__(self, budget: Budget, unproven: UnauthenticatedBudget) -> None:
        self._budget = budget
        self._unproven = unproven
        self.size = 0

    def cover(self, borrower: UserConnection, held: int) -> bool:
        """Adjust the loan to *held* bytes kept; return False if the budget does not have enough."""
        wanted = held - ALLOWANCE if held > ALLOWANCE else 0
        more = wanted - self.size
        if not more:
            return True
        if not borrower.proven:
            covered = self._unproven.hold(borrower, wanted)
            self.size = wanted if covered else 0
            return covered
        if more < 0:
            self._budget.give_back(-more)
        elif not self._budget.borrow(more):
            return False
        self.size = wanted
        return True

    def repay(self, borrower: UserConnection) -> None:
        """Give everything back."""
        size, self.size = self.size, 0
        if not size:
            return
        if borrower.proven:
            self._budget.give_back(size)
        else:
            self._unproven.hold(borrower, 0)

    def evicted(self) -> None:
        """Forget the loan: the budget for unauthenticated connections has taken it back."""
        self.size = 0
