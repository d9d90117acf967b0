"""Durations counted in eight buckets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

#: Upper bounds of the first seven buckets; the eighth has no bound.  For answers to users, s.
REQUEST_BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)

#: The same for work that delays everything else: one turn of the event loop, a write to the disk, s.
DELAY_BOUNDS = (0.001, 0.005, 0.02, 0.05, 0.2, 1.0, 5.0)


class Histogram:
    """Counts durations by bucket.

    :param bounds: seven upper bounds in ascending order, s; a bound belongs to its bucket.
    :ivar counts: the number of durations in each of the eight buckets alone.
    :ivar sum: of all durations, s.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = REQUEST_BOUNDS) -> None:
        assert len(bounds) == 7
        self.bounds = bounds
        self.counts = [0] * 8
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def observe_all(self, durations: list[float]) -> None:
        """Count several durations, which are sorted in place: many cost much less than one by one."""
        durations.sort()
        before = 0
        for number, bound in enumerate(self.bounds):
            until = bisect_right(durations, bound)
            self.counts[number] += until - before
            before = until
        self.counts[-1] += len(durations) - before
        self.sum += sum(durations)
