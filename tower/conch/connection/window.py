"""The window that we grant on one channel: how much the peer may send before we say more.

It follows round-trip time times rate, within what the process's budget lends:

* Every channel begins with `BASE`.  A window doubles when the peer would use all of it up within a few round
  trips, but at first not beyond what is enough for two processes near each other: `ALONE`, or `SHARED` if
  other channels are active, too, or less while small packets are among theirs (`tower.conch.connection.fairness`).
* Beyond that it is a multiple of what was delivered in one round trip.  As long as that becomes more, it was
  the window that held the peer up, and the multiple is three; once the path is full it is one and a half.
  What is on its way beyond what the path holds is a queue, in which everybody else in the tunnel waits: so it
  is bounded, by half a round trip and half of what is enough near by.
* It becomes smaller as the rate does, when other channels become active, when the budget has less for each,
  and by half when the channel was quiet.  What the peer was granted cannot be taken back: so a window shrinks
  only as bytes are consumed, and stays on loan for as long as they could still come.

The round trip is the shortest known (`tower.conch.connection.keepalive`), without queues: with the present one, a
queue would be a reason for a longer queue.  No I/O, no clock: times are passed in.
"""

from __future__ import annotations

from tower.errors import PeerError
from tower.net.budget import Budget

#: Granted to every channel at first, B.
BASE = 64 * 1024

#: Up to here a window grows whatever the round trip, when its channel is not alone and when it is, B.
SHARED = 384 * 1024
ALONE = 4 * 1024 * 1024

#: After so long without a grant, and two round trips, a window counts as quiet, s.
QUIET = 1.0

#: A window doubles if it would be used up in this time and `_TRIPS` round trips, s.
_SLACK = 0.03
_TRIPS = 2

#: A window is so many times what is delivered in a round trip: while that grows by `_MORE`, and then.
_GROWING = 3.0
_FULL = 1.5
_MORE = 1.1

#: What is delivered is measured for at least so long, s.
_PERIOD = 0.01

#: A grant is worth a message when half of a window up to `BASE` has gone, or this part of a larger one.
_PART = 8


class WindowOverrun(PeerError):
    """The peer sent more than it was granted."""


class Window:
    """What was granted and what came of it.

    The peer may have `size` bytes at the most in all: on their way, and here but not `consumed` yet.  So what
    a receiver holds up is bounded however it goes about it, and what is beyond `BASE` is borrowed.

    :ivar granted: what the peer may still send, B.
    :ivar held: what came and was not consumed, B.
    :ivar size: what we let it have at the most, B.
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
        return self._owed >= self._due

    def renew(self, now: float, round_trip: float, near: int) -> int:
        """Return how much to grant now, if anything.

        :param now: monotonic time, s.
        :param round_trip: the shortest to the peer, s.
        :param near: what is enough if the peer is near by, B.
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
            limit = max(near, int(self._in_one_trip * self._gain) + near // 2)
            self._resize(min(limit, self.size * 2 if is_brisk else self.size))
        grant = self.size - self.granted - self.held
        self.granted += grant
        return grant

    def _measure(self, owed: int, now: float, round_trip: float) -> None:
        """Find how much is delivered in one round trip; what falls is followed slowly, since rates vary."""
        self._moved += owed
        elapsed = now - self._measured
        if elapsed >= max(round_trip, _PERIOD):
            delivered = int(self._moved * round_trip / elapsed)
            self._gain = _GROWING if delivered > self._in_one_trip * _MORE else _FULL
            self._in_one_trip = max(delivered, self._in_one_trip * 7 // 8)
            self._moved, self._measured = 0, now

    def _resize(self, wanted: int) -> None:
        """Come as near to *wanted* bytes as the budget and what was granted before allow."""
        loan = max(0, self.size - BASE)
        allowed = min(wanted, BASE + self._budget.share(loan))
        size = max(allowed, self.granted + self.held)
        more = max(0, size - BASE) - loan
        if more > 0:
            self._budget.borrow(more)  # no more than our share, so it is there
        else:
            self._budget.give_back(-more)
        self.size = size
        self._due = max(min(size, BASE) // 2, size // _PART)

    def close(self) -> None:
        """Give back what was borrowed: nothing that comes from now on is kept."""
        self._budget.give_back(max(0, self.size - BASE))
        self.size = BASE
