"""Tests of `tower.clusters.policies.time_window`."""

from __future__ import annotations

from datetime import datetime
from math import inf
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.time_window import DAY_MINUTES, TimeWindow

WORKDAYS = (0, 1, 2, 3, 4)
HOUR = 3600.0


def at(text: str, zone: str = "Europe/Berlin") -> float:
    """Return a wall-clock time as s since the epoch."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


class TimeWindowTests(SynchronousTestCase):
    """Windows open and close at wall-clock times of their zone."""

    def check(self, window: TimeWindow, now: str, *expected: bool | str) -> None:
        """Check the state at *now*: open or not, since and until."""
        is_open, since, until = window.state(at(now))
        self.assertEqual((is_open, since, until), (expected[0], *map(at, map(str, expected[1:]))), now)

    def test_workdays(self) -> None:
        """Monday is after Friday."""
        window = TimeWindow(WORKDAYS, 8 * 60, 18 * 60, "Europe/Berlin")  # 2026-11-23 is a Monday
        self.check(window, "2026-11-23T08:00", True, "2026-11-23T08:00", "2026-11-23T18:00")
        self.check(window, "2026-11-23T17:59:59", True, "2026-11-23T08:00", "2026-11-23T18:00")
        self.check(window, "2026-11-23T18:00", False, "2026-11-23T18:00", "2026-11-24T08:00")
        self.check(window, "2026-11-28T12:00", False, "2026-11-27T18:00", "2026-11-30T08:00")
        self.assertEqual(str(window), "Mon,Tue,Wed,Thu,Fri 08:00-18:00 Europe/Berlin")

    def test_night(self) -> None:
        """A window that ends before it begins ends on the next day, which need not be listed."""
        window = TimeWindow((4,), 22 * 60, 6 * 60, "Europe/Berlin")
        self.check(window, "2026-11-28T05:59", True, "2026-11-27T22:00", "2026-11-28T06:00")
        self.check(window, "2026-11-27T21:59", False, "2026-11-21T06:00", "2026-11-27T22:00")

    def test_whole_days(self) -> None:
        """Adjacent days are one window: nothing ends at midnight."""
        window = TimeWindow((0, 1), 0, DAY_MINUTES, "Europe/Berlin")
        self.check(window, "2026-11-23T12:00", True, "2026-11-23T00:00", "2026-11-25T00:00")

    def test_summer_time(self) -> None:
        """A window follows the clocks on the wall."""
        window = TimeWindow((6,), 60, 4 * 60, "Europe/Berlin")
        for day, hours in (("2026-03-29", 2), ("2026-10-25", 4), ("2026-11-01", 3)):
            is_open, since, until = window.state(at(f"{day}T01:00"))
            self.assertEqual((is_open, until - since), (True, hours * HOUR))

    def test_unknown_zone(self) -> None:
        """A zone that this machine does not know keeps the window closed."""
        for zone in ("Europe/Atlantis", "../etc/passwd", ""):
            self.assertEqual(TimeWindow(WORKDAYS, 0, DAY_MINUTES, zone).state(0), (False, -inf, inf))

    @given(
        days=st.sets(st.integers(0, 6), min_size=1),
        begin=st.integers(0, DAY_MINUTES - 1),
        end=st.integers(1, DAY_MINUTES),
        now=st.integers(1_700_000_000, 1_800_000_000),
    )
    def test_against_the_wall(self, days: set[int], begin: int, end: int, now: int) -> None:
        """The state is that of the wall clock, and holds between its two ends."""
        if begin == end:
            return
        window = TimeWindow(tuple(sorted(days)), begin, end, "UTC")

        def is_open(moment: float) -> bool:
            minutes, day = moment // 60 % DAY_MINUTES, (moment // 86400 + 3) % 7
            if end > begin:
                return day in days and begin <= minutes < end
            return (day in days and minutes >= begin) or ((day - 1) % 7 in days and minutes < end)

        state, since, until = window.state(now)
        self.assertEqual(state, is_open(now))
        self.assertTrue(since <= now < until)
        if until < inf:
            self.assertEqual([is_open(until - 1), is_open(until)], [state, not state])
        if since > -inf:
            self.assertEqual([is_open(since - 1), is_open(since)], [not state, state])
