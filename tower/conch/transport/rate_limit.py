"""How often a peer may do what is more work for us than for it.  No I/O, no clock: times are passed in."""

from __future__ import annotations


class TokenBucket:
    """So often at once, and then so often a second.

    :param burst: how often at once.
    :param rate: how often a second, on average.
    :param now: monotonic time, s.
    """

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst = self._left = burst
        self._rate = rate
        self._at = now

    def take(self, now: float, earned: float = 0.0) -> bool:
        """Count one more; return whether it is allowed.

        :param earned: what was deserved since the last one, besides what time brings.
        """
        self._left = min(self._burst, self._left + (now - self._at) * self._rate + earned) - 1.0
        self._at = now
        return self._left >= 0.0
