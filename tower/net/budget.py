"""Memory budgets of the process: one for windows of streams, and a small one for unauthenticated clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

#: One part in so many of a budget is never lent to windows, for needs that cannot wait.
_PARTS: Final = 8


class Budget:
    """Memory that streams borrow for windows above the minimum: `lent` of *capacity*, both in B."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.lent = 0
        self._shared = capacity - capacity // _PARTS

    def borrow(self, size: int) -> bool:
        """Borrow *size* bytes; return False, and borrow nothing, if less is left."""
        if self.lent + size > self.capacity:
            return False
        self.lent += size
        return True

    def give_back(self, size: int) -> None:
        """Return *size* borrowed bytes."""
        self.lent -= size

    def share(self, loan: int) -> int:
        """Return the largest fair loan of a borrower that has *loan* bytes, B.

        It is twice what is left then (dynamic thresholds: Choudhury and Hahne, "Dynamic Queue Length
        Thresholds for Shared-Memory Packet Switches", 1998).  A single borrower gets two thirds; each new one
        finds some left, and as it borrows, the shares of the others shrink: *n* borrowers that want more than
        there is end at 2 / (2n + 1) each.
        """
        return max(0, 2 * (self._shared - self.lent + loan) // 3)


#: Memory of all unauthenticated clients: one part in so many of the process's budget, and its minimum, B.
UNAUTHENTICATED_PART: Final = 16
UNAUTHENTICATED_MINIMUM: Final = 256 * 1024

#: Added to every age when holders are compared, s, so that among new ones the largest is evicted first.
_NEW: Final = 0.1


class MemoryHolder(Protocol):
    """An unauthenticated connection that holds memory."""

    def evict(self) -> None:
        """Release the memory, and close."""


class UnauthenticatedBudget:
    """Memory that unauthenticated connections hold; beyond the limit the heaviest is evicted, not the newest.

    Weight is size times age, so that a valid head that arrives a round trip late survives among thousands of
    heads that never end, large or small.  Only the oldest connection of each power of two in size is
    compared.

    :param capacity: limit of all sizes, B; `held` is their sum.
    :param seconds: a monotonic clock.
    """

    def __init__(self, capacity: int, seconds: Callable[[], float]) -> None:
        self.capacity = capacity
        self.held = 0
        self.evicted = 0
        self._seconds = seconds
        self._sizes: dict[MemoryHolder, tuple[int, float]] = {}  # size and start
        self._classes: dict[
            int, dict[MemoryHolder, float]
        ] = {}  # starts, in order, by power of two of the size

    def hold(self, holder: MemoryHolder, size: int) -> bool:
        """Set the size that *holder* holds, B, and evict others; return False if it must close itself."""
        since = self._forget(holder)
        if size:
            self._note(holder, size, self._seconds() if since is None else since)
        while self.held > self.capacity:
            victim = self._heaviest()
            self._forget(victim)
            self.evicted += 1
            if victim is holder:
                return False
            victim.evict()
        return True

    def _note(self, holder: MemoryHolder, size: int, since: float) -> None:
        self._sizes[holder] = size, since
        self._classes.setdefault(size.bit_length(), {})[holder] = since
        self.held += size

    def _forget(self, holder: MemoryHolder) -> float | None:
        """Return the time since which it held memory."""
        known = self._sizes.pop(holder, None)
        if known is None:
            return None
        size, since = known
        power = size.bit_length()
        members = self._classes[power]
        del members[holder]
        if not members:
            del self._classes[power]
        self.held -= size
        return since

    def _heaviest(self) -> MemoryHolder:
        now = self._seconds() + _NEW
        weights = (
            ((now - since) * (1 << power), holder)
            for power, members in self._classes.items()
            for holder, since in (next(iter(members.items())),)
        )
        return max(weights, key=lambda weight: weight[0])[1]
