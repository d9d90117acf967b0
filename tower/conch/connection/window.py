"""The receive window of one channel: how much the peer may send before we grant more.

It follows round-trip time times rate, within the process's budget; docs/data-path.md has the rules under
"Windows".  While the data delivered in a round trip grows, the window was the bottleneck; once the path is
full, more data is only a queue in which all other channels wait.  The round trip is the shortest known
(`tower.conch.connection.keepalive`): the present one would let a queue justify a longer queue.  Granted
credit cannot be taken back: a window shrinks only as bytes are consumed.  No I/O, no clock: times are passed
in.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from tower.errors import PeerError
from tower.net.budget import Budget

#: Initial window of every channel, B.
BASE: Final = 64 * 1024

#: Limits for nearby peers: with other active channels, and alone, B.
SHARED: Final = 384 * 1024
ALONE: Final = 4 * 1024 * 1024

#: A window is quiet after this time, and two round trips, without a grant, s.
QUIET: Final = 1.0

#: A window doubles if it would be used up within this time and `_TRIPS` round trips, s.
_SLACK: Final = 0.03
_TRIPS: Final = 2

#: Multiples of the data delivered in a round trip: while that grows by `_MORE`, and after that.
_GROWING: Final = 3.0
_FULL: Final = 1.5
_MORE: Final = 1.1

#: Least time over which the delivered data is measured, s.
_PERIOD: Final = 0.01

#: A grant is due when half of a window up to `BASE`, or this part of a larger one, is consumed.
_PART: Final = 8


class WindowOverrun(PeerError):
    """The peer sent more than was granted."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Window:
    """Granted and received bytes of one channel.

    The peer may have `size` bytes at most: in transit, or received and not `consumed`.  So the memory that a
    receiver can hold up is bounded, and the part beyond `BASE` is borrowed from the budget.

    :ivar granted: bytes that the peer may still send.
    :ivar held: bytes received and not consumed.
    :ivar size: limit of both together, B.
    :ivar counted: when `tower.conch.connection.fairness.BusyChannels` counted it last, monotonic time, s.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = self.granted = BASE
        self.held = 0
        self._owed = 0
        self._due = BASE // 2
        self._renewed = self.counted = 0.0
        self._measured = 0.0
        self._moved = 0
        self._in_one_trip = 0
        self._gain = _FULL

    def arrived(self, size: int) -> None:
        """Record *size* received bytes.

        :raise WindowOverrun: they exceed the granted bytes.
        """
        if size > self.granted:
            raise WindowOverrun(f"{size} B received, {self.granted} B granted")
        self.granted -= size
        self.held += size

    def consumed(self, size: int) -> bool:
        """Record *size* consumed bytes; return whether it is time to `renew`."""
        self.held -= size
        self._owed += size
        return self._owed >= self._due

    def renew(self, now: float, round_trip: float, nearby: int) -> int:
        """Return the bytes to grant now; may be 0.

        :param now: monotonic time, s.
        :param round_trip: the shortest to the peer, s.
        :param nearby: limit for a nearby peer, B.
        """
        owed, self._owed = self._owed, 0
        elapsed = now - self._renewed
        self._renewed = now
        if elapsed > QUIET + 2 * round_trip:
            self._moved, self._measured = 0, now
            self._in_one_trip //= 2
            self._resize(max(BASE, self.size // 2))
        else:
            self._measure(owed, now, round_trip)
            used_up_in = elapsed * self.size / owed if owed else QUIET
            is_brisk = used_up_in <= _SLACK + _TRIPS * round_trip
            limit = max(nearby, int(self._in_one_trip * self._gain) + nearby // 2)
            self._resize(min(limit, self.size * 2 if is_brisk else self.size))
        grant = self.size - self.granted - self.held
        self.granted += grant
        return grant

    def _measure(self, owed: int, now: float, round_trip: float) -> None:
        """Measure the data delivered in one round trip; a fall is followed slowly, since rates vary."""
        self._moved += owed
        elapsed = now - self._measured
        if elapsed >= max(round_trip, _PERIOD):
            delivered = int(self._moved * round_trip / elapsed)
            self._gain = _GROWING if delivered > self._in_one_trip * _MORE else _FULL
            self._in_one_trip = max(delivered, self._in_one_trip * 7 // 8)
            self._moved, self._measured = 0, now

    def _resize(self, wanted: int) -> None:
        """Resize towards *wanted* bytes, within the budget and not below earlier grants."""
        loan = max(0, self.size - BASE)
        allowed = min(wanted, BASE + self._budget.share(loan))
        size = max(allowed, self.granted + self.held)
        more = max(0, size - BASE) - loan
        if more > 0:
            self._budget.borrow(more)  # not more than our share, so it is available
        else:
            self._budget.give_back(-more)
        self.size = size
        self._due = max(min(size, BASE) // 2, size // _PART)

    def close(self) -> None:
        """Return the borrowed bytes: later data is not kept."""
        self._budget.give_back(max(0, self.size - BASE))
        self.size = BASE
