"""What a proxy may have an agent hold for requests that are not there yet.

A stream to the API server costs a connection with TLS, some 40 KiB, as soon as it is open, and keeps what has
come of a head.  A proxy of ours sends a request right away, in one piece.
"""

from __future__ import annotations

from typing import Protocol

from tower.net.budget import Budget
from tower.reactor.timers import Clock, Deadline

#: Streams to the API server that are being opened, or were and have carried no whole head yet, at one time.
UNUSED_LIMIT = 512

#: What unfinished heads may take of the agent's memory budget, B, and at the most one of so many parts of it.
CAPACITY = 4 * 1024 * 1024
_PARTS = 8

#: How long a head may take from its first byte to its last, s.
HEAD_TIMEOUT = 10.0


class Stream(Protocol):
    """What waits for a head."""

    def too_slow(self) -> None:
        """Refuse the head: it is `HEAD_TIMEOUT` old."""


class UnfinishedHeads:
    """The streams of an agent that have carried no whole head, and what has come of heads.

    :param budget: of the process.
    """

    def __init__(self, clock: Clock, budget: Budget) -> None:
        self._clock = clock
        self._budget = budget
        self._capacity = min(CAPACITY, budget.capacity // _PARTS)
        self._held = 0
        self._unused: set[Stream] = set()
        self._sizes: dict[Stream, tuple[int, float]] = {}  # and since when, the oldest first
        self._deadline: Deadline | None = None

    @property
    def unused(self) -> int:
        """How many streams have carried no whole head."""
        return len(self._unused)

    @property
    def held(self) -> int:
        """What has come of heads, B."""
        return self._held

    def opened(self, stream: Stream) -> None:
        """Note a stream that waits for its first head."""
        self._unused.add(stream)

    def keep(self, stream: Stream, size: int) -> bool:
        """Note that so much has come of the head that *stream* waits for; return False if there is no room.

        :param size: B, all of it.
        """
        before, since = self._sizes.get(stream, (0, self._clock.seconds()))
        more = size - before
        if self._held + more > self._capacity or not self._budget.borrow(more):
            return False
        self._held += more
        self._sizes[stream] = size, since
        if self._deadline is None:
            self._watch(since)
        return True

    def done(self, stream: Stream) -> None:
        """Note that *stream* has a whole head, or wants none any more."""
        self._unused.discard(stream)
        size, _ = self._sizes.pop(stream, (0, 0.0))
        if size:
            self._held -= size
            self._budget.give_back(size)
        if not self._sizes and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch(self, since: float) -> None:
        left = max(0.0, since + HEAD_TIMEOUT - self._clock.seconds())
        self._deadline = Deadline(self._clock, left, self._look)

    def _look(self) -> None:
        """Refuse those that are too old, and wait for the next one."""
        self._deadline = None
        now = self._clock.seconds()
        for stream, (_, since) in list(self._sizes.items()):
            if now < since + HEAD_TIMEOUT:
                break
            stream.too_slow()
            self.done(stream)
        if self._sizes and self._deadline is None:
            self._watch(next(iter(self._sizes.values()))[1])
