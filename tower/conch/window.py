"""The window that we grant on one channel: how much the peer may send before we say more.

A window starts at `BASE`, which every channel has, and doubles whenever the peer used up half of it within
two round trips, as long as the process's budget lends the rest: so it follows round-trip time times rate.
It shrinks again when the channel was quiet.  It stays at `SHARED` while other channels are active in the
same tunnel, because what is in flight is what they wait behind.  No I/O, no clock: times are passed in.
"""

from __future__ import annotations

from tower.budget import Budget
from tower.errors import PeerError

#: Granted to every channel, B.
BASE = 64 * 1024

#: The largest window of a channel that is not alone, and of one that is, B.
SHARED = 512 * 1024
ALONE = 4 * 1024 * 1024

#: After so long without a grant a window counts as quiet, s.
QUIET = 1.0


class WindowOverrun(PeerError):
    """The peer sent more than it was granted."""


class Window:
    """What was granted and what came of it.

    The peer may have `size` bytes at the most in all: on their way, and here but not `consumed` yet.  So what
    a receiver holds up is bounded however it goes about it.

    :ivar granted: what the peer may still send, B.
    :ivar held: what came and was not consumed, B.
    :ivar size: what we let it have at the most, B.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = self.granted = BASE
        self.held = 0
        self._owed = 0
        self._last_grant = 0.0

    def arrived(self, size: int) -> None:
        """Note that *size* bytes came.

        :raise WindowOverrun: they were more than granted.
        """
        if size > self.granted:
            raise WindowOverrun(f"{size} B came where {self.granted} B were granted")
        self.granted -= size
        self.held += size

    def consumed(self, size: int) -> bool:
        """Note that *size* bytes have left us; return whether it is time to `renew`."""
        self.held -= size
        self._owed += size
        return self._owed * 2 >= self.size

    def renew(self, now: float, round_trip: float, *, alone: bool) -> int:
        """Return how much to grant now, if anything.

        :param now: monotonic time, s.
        :param round_trip: to the peer, s.
        :param alone: whether no other channel of the tunnel is active.
        """
        elapsed = now - self._last_grant
        self._last_grant = now
        if elapsed > QUIET:
            self._resize(max(BASE, self.size // 2))
        elif elapsed < 2 * round_trip + 0.002 and self.size < (ALONE if alone else SHARED):
            self._resize(self.size * 2)
        elif not alone and self.size > SHARED:
            self._resize(SHARED)
        grant = max(0, self.size - self.granted - self.held)
        self._owed = 0
        self.granted += grant
        return grant

    def _resize(self, size: int) -> None:
        more = size - self.size
        if more <= 0:
            self._budget.give_back(-more)
        elif not self._budget.borrow(more):
            return
        self.size = size

    def close(self) -> None:
        """Give back what was borrowed."""
        self._resize(BASE)
