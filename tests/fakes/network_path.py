"""A path between a sender that always has more and a receiver that takes everything, in simulated time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from tower.conch.connection.window import ALONE, BASE, Window
from tower.net.budget import Budget

#: Packets of the senders, B.
_PACKET = 64 * 1024

#: Data that a sender's kernel accepts before the link, s.
_AHEAD = 0.02


class Path:
    """A link of one rate and one delay in each direction, and windows at its far end.

    :param round_trip: s.
    :param near: limit of the windows for a nearby peer, B.
    :ivar rate: of the link, B/s.
    :ivar delivered: since `run` was called last, B, by stream.
    :ivar largest: the largest window there was, B.
    """

    def __init__(
        self,
        rate: float,
        round_trip: float,
        *,
        near: int = ALONE,
        streams: int = 1,
        budget: int = 32 << 20,
    ) -> None:
        self.rate = rate
        self._round_trip = round_trip
        self._near = near
        self._budget = Budget(budget)
        self.windows = [Window(self._budget) for _ in range(streams)]
        self._credit = [BASE] * streams
        self.delivered = [0] * streams
        self.largest = 0
        self._events: list[tuple[float, int, Any, int, int]] = []
        self._count = 0
        self._now = 100.0
        self._free_at = 0.0
        self._arrivals: list[tuple[float, int]] = []
        self.longest_queue = 0.0
        for stream in range(streams):
            self._at(self._now, self._send, stream)

    @property
    def lent(self) -> int:
        """Borrowed bytes."""
        return self._budget.lent

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self._now + seconds
        self.delivered = [0] * len(self.windows)
        self._arrivals = []
        while self._events and self._events[0][0] <= until:
            self._now, _, do, stream, size = heappop(self._events)
            do(stream, size)
        self._now = until

    def use(self, seconds: float) -> float:
        """Return how much of the link was used in the last so many seconds of `run`, 0 to 1."""
        since = self._now - seconds
        return sum(size for at, size in self._arrivals if at > since) / (self.rate * seconds)

    def _at(self, when: float, do: Any, stream: int, size: int = 0) -> None:
        self._count += 1
        heappush(self._events, (when, self._count, do, stream, size))

    def _send(self, stream: int, _: int) -> None:
        """Put one packet on the link, unless it is too far behind, and come back for the next."""
        if not self._credit[stream]:
            return
        ahead = self._free_at - self._now
        self.longest_queue = max(self.longest_queue, ahead)
        if ahead > _AHEAD:
            self._at(self._free_at - _AHEAD / 2, self._send, stream)
            return
        size = min(self._credit[stream], _PACKET)
        self._credit[stream] -= size
        self._free_at = max(self._free_at, self._now) + size / self.rate
        self._at(self._free_at + self._round_trip / 2, self._receive, stream, size)
        if self._credit[stream]:
            self._at(self._now, self._send, stream)

    def _receive(self, stream: int, size: int) -> None:
        window = self.windows[stream]
        window.arrived(size)
        self.delivered[stream] += size
        self._arrivals.append((self._now, size))
        if window.consumed(size):
            grant = window.renew(self._now, self._round_trip, self._near)
            self._at(self._now + self._round_trip / 2, self._adjusted, stream, grant)
        self.largest = max(self.largest, window.size)

    def _adjusted(self, stream: int, grant: int) -> None:
        was_empty = not self._credit[stream]
        self._credit[stream] += grant
        if was_empty:
            self._send(stream, 0)
