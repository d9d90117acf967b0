"""Round-robin over connections that have more pipelined requests than one turn serves.

A client that pipelines thousands of requests gets a few answers, then other connections are served.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime

if TYPE_CHECKING:
    from tower.web.gateway.http_channel import HTTPChannel

#: How long turns are given before the reactor does its other work, s.
SLICE = 0.002


class RoundRobin:
    """A queue of connections; each gets one turn, first come first served."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._queue: deque[HTTPChannel] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._queue)

    def join(self, channel: HTTPChannel) -> None:
        """Call ``channel.take_turn()`` once, later."""
        self._queue.append(channel)
        self._schedule()

    def _schedule(self) -> None:
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._run)

    def _run(self) -> None:
        """Give one turn to each queued connection, for `SLICE` at most."""
        self._scheduled = False
        end = self._clock.seconds() + SLICE
        try:
            for _ in range(len(self._queue)):
                self._queue.popleft().take_turn()
                if self._clock.seconds() >= end:
                    break
        finally:
            self._schedule()
