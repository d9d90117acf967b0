"""Who is active in a tunnel, and what that means for the others: how large packets and windows may be.

Behind what one channel has under way all others wait.  A tunnel of which one channel has the use may have
large packets and large windows; small packets of others want shorter ones.  No I/O, no clock: times are
passed in.
"""

from __future__ import annotations

from typing import Protocol

from tower.conch.connection.messages import ALWAYS_FITS, LONGEST_DATA
from tower.conch.connection.window import ALONE, SHARED, Window

#: Data in one packet while small packets of other channels would wait behind it, B.  Like that of the longest
#: it divides windows without a rest, which would have to go as a small packet of its own.
SHARED_PACKET = 64 * 1024

#: How long after a change of channel a tunnel counts as shared, and one round trip, s.
SHARED_FOR = 0.25

#: What is enough near by for all busy channels together while others have small packets, and the smallest
#: part of it, B.
MIXED = 1024 * 1024
LEAST = 16 * 1024

#: Who was granted something in a period of this length is busy until the end of the next one, s.
_COUNTED = 0.25


class BusyChannels:
    """The busy channels of one tunnel: counted, not listed."""

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


class Measured(Protocol):
    """Knows how far away the peer is."""

    @property
    def round_trip(self) -> float:
        """To the peer, s; 0 while unknown."""


class Fairness:
    """What the channels of one tunnel know of each other.

    :param wire: the tunnel's.
    :ivar largest: how much data the next packet may have, B; kept, not computed, since each packet asks.
    :ivar busiest: the channel that moved data last; `notice` is told of any other.
    :ivar is_mixed: whether small packets of several channels were noticed: then nothing more need be.
    """

    __slots__ = (
        "_changed",
        "_company",
        "_mixed_until",
        "_shared_until",
        "_wire",
        "busiest",
        "is_mixed",
        "largest",
    )

    def __init__(self, wire: Measured) -> None:
        self._wire = wire
        self.largest = LONGEST_DATA
        self.busiest: object = None
        self.is_mixed = self._changed = False
        self._shared_until = self._mixed_until = 0.0
        self._company = BusyChannels()

    def notice(self, channel: object, size: int) -> None:
        """Note that another channel is active now; no clock is asked: this is done for most packets.

        Bulk does not mind the large packets of other bulk, but small packets do.
        """
        if self.busiest is not None:
            self._changed = True
            if size <= ALWAYS_FITS:
                self.is_mixed = True
                self.largest = SHARED_PACKET
        self.busiest = channel

    def forget(self, channel: object) -> None:
        """Note that *channel* is gone."""
        if self.busiest is channel:
            self.busiest = None

    def look(self, now: float) -> bool:
        """Return whether more than one channel was active of late, and bring `largest` up to date.

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

    def near(self, window: Window, now: float) -> int:
        """Return what is enough for a channel's window if the peer is near by, B; see `look`."""
        if not self.look(now):
            return ALONE
        if now >= self._mixed_until:
            return SHARED
        return self._company.share(window, now)
