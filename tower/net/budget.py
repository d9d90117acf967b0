"""One memory budget for the process: what may be granted to peers beyond a small allowance each.

Strangers, who have shown no valid credential, have a small one of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

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


#: What strangers may keep together, as a part of the process's budget, and the least that it may be, B.
STRANGERS_PART = 16
STRANGERS_LEAST = 256 * 1024

#: Added to the age of what a stranger keeps when it is compared with others, s: of those that just came the
#: largest goes first.
_NEW = 0.1


class Stranger(Protocol):
    """A connection that keeps something."""

    def evict(self) -> None:
        """Keep nothing more, and end."""


class StrangersBudget:
    """Counts what strangers keep.  When it is too much, the one that keeps most has to go, not the newcomer.

    Most is size times time, so that an honest head that takes a round trip longer survives beside thousands
    of heads that are never finished, be these large or small.  It is found without looking at all of them: by
    the power of two that a size is below, and among these the one that began first.

    :param capacity: how much they may keep together, B.
    :param seconds: a steady clock.
    :ivar held: how much they do, B.
    :ivar evicted: how many had to go so far.
    """

    def __init__(self, capacity: int, seconds: Callable[[], float]) -> None:
        self.capacity = capacity
        self.held = 0
        self.evicted = 0
        self._seconds = seconds
        self._sizes: dict[Stranger, tuple[int, float]] = {}  # and since when
        self._classes: dict[int, dict[Stranger, float]] = {}  # by the power, in the order in which they came

    def hold(self, stranger: Stranger, size: int) -> bool:
        """Note that *stranger* keeps *size* bytes now; 0: nothing.

        :return: False when it has to go itself; others are told by `Stranger.evict`.
        """
        since = self._forget(stranger)
        if size:
            self._note(stranger, size, self._seconds() if since is None else since)
        while self.held > self.capacity:
            victim = self._heaviest()
            self._forget(victim)
            self.evicted += 1
            if victim is stranger:
                return False
            victim.evict()
        return True

    def _note(self, stranger: Stranger, size: int, since: float) -> None:
        self._sizes[stranger] = size, since
        self._classes.setdefault(size.bit_length(), {})[stranger] = since
        self.held += size

    def _forget(self, stranger: Stranger) -> float | None:
        """Return since when it kept something."""
        known = self._sizes.pop(stranger, None)
        if known is None:
            return None
        size, since = known
        power = size.bit_length()
        members = self._classes[power]
        del members[stranger]
        if not members:
            del self._classes[power]
        self.held -= size
        return since

    def _heaviest(self) -> Stranger:
        now = self._seconds() + _NEW
        weights = (
            ((now - since) * (1 << power), stranger)
            for power, members in self._classes.items()
            for stranger, since in (next(iter(members.items())),)
        )
        return max(weights, key=lambda weight: weight[0])[1]
