"""Fairness between the channels of a tunnel: sizes of packets and windows.

All channels wait behind the data that one of them has in flight.  A channel that is alone in its tunnel may
have large packets and windows; small packets of others need shorter ones.  No I/O, no clock: times are passed
in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tower.conch.connection.messages import ALWAYS_FITS, LONGEST_DATA
from tower.conch.connection.window import ALONE, SHARED, Window

if TYPE_CHECKING:
    from tower.conch.tunnel.outlet import Outlet

#: Data of a packet while small packets of other channels would wait behind it, B.  Like the longest packet it
#: divides windows evenly: a remainder would need another small packet.
SHARED_PACKET: Final = 64 * 1024

#: A tunnel counts as shared for this time and one round trip after a change of the active channel, s.
SHARED_FOR: Final = 0.25

#: Limit of all windows of busy channels together while others send small packets, and the least for each, B;
#: for a nearby peer.
MIXED: Final = 1024 * 1024
LEAST: Final = 16 * 1024

#: A channel that was granted credit in a period of this length is busy until the end of the next one, s.
_COUNTED: Final = 0.25


class BusyChannels:
    """Counts the busy channels of one tunnel, without a list of them."""

    __slots__ = ("_before", "_began", "_count")

    def __init__(self) -> None:
        self._began = 0.0
        self._count = self._before = 0

    def share(self, window: Window, now: float) -> int:
        """Count the channel of *window* as busy and return its part of `MIXED`, B.

        :param now: monotonic time, s.
        """
        elapsed = now - self._began
        if elapsed >= _COUNTED:
            self._before = self._count if elapsed < 2 * _COUNTED else 0
            self._began, self._count = now, 0
        if window.counted < self._began or not self._count:
            self._count += 1
        window.counted = now
        return max(LEAST, min(SHARED, MIXED // max(self._before, self._count)))


class Fairness:
    """Activity of the channels of one tunnel, and the limits that follow from it.

    :ivar largest: data of the next packet at most, B; stored, not computed, since each packet reads it.
    :ivar last_active: the channel that moved data last; `record` is called for any other.
    :ivar is_mixed: whether small packets of several channels were recorded: then no more records are needed.
    """

    __slots__ = (
        "_busy",
        "_changed",
        "_mixed_until",
        "_shared_until",
        "_wire",
        "is_mixed",
        "largest",
        "last_active",
    )

    def __init__(self, wire: Outlet) -> None:
        self._wire = wire
        self.largest = LONGEST_DATA
        self.last_active: object = None
        self.is_mixed = self._changed = False
        self._shared_until = self._mixed_until = 0.0
        self._busy = BusyChannels()

    def record(self, channel: object, size: int) -> None:
        """Record that another channel is active.  It does not read the clock: it is called for most packets.

        Large packets of others slow down small ones, not bulk data.
        """
        if self.last_active is not None:
            self._changed = True
            if size <= ALWAYS_FITS:
                self.is_mixed = True
                self.largest = SHARED_PACKET
        self.last_active = channel

    def forget(self, channel: object) -> None:
        """Forget a closed channel."""
        if self.last_active is channel:
            self.last_active = None

    def update(self, now: float) -> bool:
        """Update `largest`; return whether several channels were active recently.

        :param now: monotonic time, s.
        """
        if self.is_mixed:
            self.is_mixed = False
            self._mixed_until = now + SHARED_FOR
        elif now >= self._mixed_until:
            self.largest = LONGEST_DATA
        if self._changed:
            self._changed = False
            self._shared_until = now + SHARED_FOR + self._wire.round_trip
        return now < self._shared_until

    def window_limit(self, window: Window, now: float) -> int:
        """Return the limit of a channel's window for a nearby peer, B; updates as `update`."""
        if not self.update(now):
            return ALONE
        if now >= self._mixed_until:
            return SHARED
        return self._busy.share(window, now)
