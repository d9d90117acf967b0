"""One memory budget for the process: what may be granted to peers beyond a small allowance each."""

from __future__ import annotations

#: One of so many parts of a budget is never lent to windows, so that who needs memory at once finds some.
_PARTS = 8


class Budget:
    """Counts what is on loan.  A stream that wants a larger window borrows it here first.

    :param capacity: how much may be on loan at once, B.
    :ivar lent: how much is, B.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.lent = 0
        self._shared = capacity - capacity // _PARTS

    def borrow(self, size: int) -> bool:
        """Take *size* bytes, or nothing and return False when so much is not left."""
        if self.lent + size > self.capacity:
            return False
        self.lent += size
        return True

    def give_back(self, size: int) -> None:
        """Return what was borrowed."""
        self.lent -= size

    def share(self, loan: int) -> int:
        """Return how large the loan of one who has *loan* bytes should be at the most, B.

        That is twice what is left then (dynamic thresholds: Choudhury and Hahne, "Dynamic Queue Length
        Thresholds for Shared-Memory Packet Switches", 1998).  One alone gets two thirds; each newcomer finds
        something left, and as it takes of that, the shares of the others become smaller: *n* borrowers who
        want more than there is, and follow, end at 2 / (2n + 1) each.
        """
        return max(0, 2 * (self._shared - self.lent + loan) // 3)
