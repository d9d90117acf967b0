"""Rate limit of requests that cost us more than the peer.  No I/O, no clock: times are passed in."""

from __future__ import annotations


class TokenBucket:
    """A token bucket.

    :param burst: size of the bucket.
    :param rate: tokens a second.
    :param now: monotonic time, s.
    """

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst = self._left = burst
        self._rate = rate
        self._at = now

    def take(self, now: float, earned: float = 0.0) -> bool:
        """Take a token; return whether there was one.

        :param earned: tokens added since the last call, in addition to those that time adds.
        """
        self._left = min(self._burst, self._left + (now - self._at) * self._rate + earned) - 1.0
        self._at = now
        return self._left >= 0.0
