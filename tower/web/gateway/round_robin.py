"""Connections on which more requests wait than are served in one turn: each goes on in its turn.

Whoever sends thousands of requests in one go has a few of them answered, then everybody else who is ready is
served, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

#: How long turns are given before the reactor does what else there is to do, s.
SLICE = 0.002


class Clock(Protocol):
    """The part of a reactor that is needed here."""

    def seconds(self) -> float:
        """Return the time, s."""

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any:  # noqa: A002
        """Call *callable* after *delay* s."""


class Waiting(Protocol):
    """One that has something left to do."""

    def take_turn(self) -> None:
        """Do a little of it; join again if there is more."""


class RoundRobin:
    """Gives turns, first come first served.

    :param clock: the reactor, or a clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[Waiting] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._queue)

    def join(self, waiting: Waiting) -> None:
        """Give *waiting* one turn, later."""
        self._queue.append(waiting)
        self._schedule()

    def _schedule(self) -> None:
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._go_round)

    def _go_round(self) -> None:
        """Give a turn to each who waits now, or to as many as there is time for."""
        self._scheduled = False
        end = self._clock.seconds() + SLICE
        try:
            for _ in range(len(self._queue)):
                self._queue.popleft().take_turn()
                if self._clock.seconds() >= end:
                    break
        finally:
            self._schedule()
