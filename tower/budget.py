"""One memory budget for the process: what may be granted to peers beyond a small allowance each."""

from __future__ import annotations


class Budget:
    """Counts what is on loan.  A stream that wants a larger window borrows it here first.

    :param capacity: how much may be on loan at once, B.
    :ivar lent: how much is, B.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.lent = 0

    def borrow(self, size: int) -> bool:
        """Take *size* bytes, or nothing and return False when so much is not left."""
        if self.lent + size > self.capacity:
            return False
        self.lent += size
        return True

    def give_back(self, size: int) -> None:
        """Return what was borrowed."""
        self.lent -= size
