"""Limits of an agent's streams that wait for the head of a request.

An open stream to the API server costs a TLS connection, about 40 KiB, plus its incomplete head.  A Tower
proxy sends a request at once and in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tower.net.budget import Budget
from tower.reactor.timers import Clock, Deadline

#: Most streams to the API server that are being opened or have not had a complete head.
UNUSED_LIMIT = 512

#: Memory for incomplete heads, B; at most this part (1 / 8) of the agent's memory budget.
CAPACITY = 4 * 1024 * 1024
_PARTS = 8

#: Timeout of a head, from its first byte to its last, s.
HEAD_TIMEOUT = 10.0


class UnfinishedHeads:
    """The streams of an agent that wait for the head of a request, and their incomplete heads."""

    def __init__(self, clock: Clock, budget: Budget) -> None:
        self._clock = clock
        self._budget = budget
        self._capacity = min(CAPACITY, budget.capacity // _PARTS)
        self._held = 0
        self._unused: set[Hashable] = set()
        # Size, begin and timeout callback of heads, the oldest first.
        self._heads: dict[Hashable, tuple[int, float, Callable[[], None]]] = {}
        self._deadline: Deadline | None = None

    @property
    def unused(self) -> int:
        """Number of streams without a complete head so far."""
        return len(self._unused)

    @property
    def held(self) -> int:
        """Size of all incomplete heads, B."""
        return self._held

    def opened(self, stream: Hashable) -> None:
        """Register a stream that waits for its first head."""
        self._unused.add(stream)

    def keep(self, stream: Hashable, size: int, timed_out: Callable[[], None]) -> bool:
        """Record the size of an incomplete head; return False if there is no memory for it.

        :param size: of all received parts, B.
        :param timed_out: called if the head is incomplete after `HEAD_TIMEOUT`.
        """
        before, since, _ = self._heads.get(stream, (0, self._clock.seconds(), None))
        more = size - before
        if self._held + more > self._capacity or not self._budget.borrow(more):
            return False
        self._held += more
        self._heads[stream] = size, since, timed_out
        if self._deadline is None:
            self._watch(since)
        return True

    def done(self, stream: Hashable) -> None:
        """Forget a stream that has a complete head or was closed."""
        self._unused.discard(stream)
        head = self._heads.pop(stream, None)
        if head is not None:
            self._held -= head[0]
            self._budget.give_back(head[0])
        if not self._heads and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch(self, since: float) -> None:
        left = max(0.0, since + HEAD_TIMEOUT - self._clock.seconds())
        self._deadline = Deadline(self._clock, left, self._check)

    def _check(self) -> None:
        """Time out the oldest heads, and wait for the next one."""
        self._deadline = None
        now = self._clock.seconds()
        for stream, (_, since, timed_out) in list(self._heads.items()):
            if now < since + HEAD_TIMEOUT:
                break
            timed_out()
            self.done(stream)
        if self._heads and self._deadline is None:
            self._watch(next(iter(self._heads.values()))[1])
