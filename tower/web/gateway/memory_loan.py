"""What a user's connection borrows for the bytes that it keeps.

While its user is a stranger it borrows from the budget that strangers share, and may have to end for another;
after that from the process's budget, which lends what it has and calls nothing in.
"""

from __future__ import annotations

from typing import Protocol

from tower.net.budget import Budget, MemoryHolder, UnauthenticatedBudget

#: What a connection may keep without borrowing, B.
ALLOWANCE = 4 * 1024


class Borrower(MemoryHolder, Protocol):
    """What is needed of `tower.web.gateway.http_channel.HTTPChannel`."""

    @property
    def proven(self) -> bool:
        """Whether the user has shown a valid credential."""


class Loan:
    """The loan of one connection; it has to be repaid before `Borrower.proven` changes.

    :ivar size: B.
    """

    __slots__ = ("_budget", "_strangers", "size")

    def __init__(self, budget: Budget, strangers: UnauthenticatedBudget) -> None:
        self._budget = budget
        self._strangers = strangers
        self.size = 0

    def cover(self, borrower: Borrower, held: int) -> bool:
        """Borrow for *held* bytes that *borrower* keeps, or give back.

        :return: False when so much is not left.
        """
        wanted = held - ALLOWANCE if held > ALLOWANCE else 0
        more = wanted - self.size
        if not more:
            return True
        if not borrower.proven:
            stays = self._strangers.hold(borrower, wanted)
            self.size = wanted if stays else 0
            return stays
        if more < 0:
            self._budget.give_back(-more)
        elif not self._budget.borrow(more):
            return False
        self.size = wanted
        return True

    def repay(self, borrower: Borrower) -> None:
        """Borrow nothing, until `cover` is asked next."""
        size, self.size = self.size, 0
        if not size:
            return
        if borrower.proven:
            self._budget.give_back(size)
        else:
            self._strangers.hold(borrower, 0)

    def called_in(self) -> None:
        """Note that the strangers' budget has ended the loan."""
        self.size = 0
