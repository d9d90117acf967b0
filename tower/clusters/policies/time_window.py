"""Time windows: weekdays and hours in a time zone, in which a policy admits users."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from math import inf
from zoneinfo import ZoneInfo

from attrs import frozen

#: Names of weekdays, Monday first.
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

#: Minutes of a day: the end of a window may be 24:00.
DAY_MINUTES = 24 * 60

# Days around the current one that are searched for the next change.
_BEFORE, _AFTER = 9, 9


@frozen
class TimeWindow:
    """A window of each of some weekdays; one that ends before it begins ends on the next day.

    :ivar days: numbers of weekdays on which it begins, Monday is 0.
    :ivar begin: minutes after midnight.
    :ivar end: minutes after midnight; up to `DAY_MINUTES`.
    :ivar zone: name in the IANA time zone database.
    """

    days: tuple[int, ...]
    begin: int
    end: int
    zone: str

    def state(self, now: float) -> tuple[bool, float, float]:
        """Return whether the window is open at *now*, since when, and until when; s since the epoch.

        A time zone that this machine does not know keeps it closed.
        """
        try:
            zone = ZoneInfo(self.zone)
            today = datetime.fromtimestamp(now, zone).date()
        except (OSError, ValueError, LookupError):
            return False, -inf, inf
        since = -inf
        for begin, end in self._spans(zone, today):
            if now < begin:
                return False, since, begin
            if now < end:
                return True, begin, end
            since = max(since, end)
        return False, since, inf

    def _spans(self, zone: ZoneInfo, today: date) -> Iterator[tuple[float, float]]:
        """Return begin and end of the windows of the days around *today*; adjacent ones are joined."""
        joined: tuple[float, float] | None = None
        for number in range(-_BEFORE, _AFTER):
            day = today + timedelta(days=number)
            if day.weekday() not in self.days:
                continue
            last = day if self.end > self.begin else day + timedelta(days=1)
            begin, end = _moment(day, self.begin, zone), _moment(last, self.end, zone)
            if joined is not None and begin <= joined[1]:
                joined = (joined[0], max(joined[1], end))
                continue
            if joined is not None:
                yield joined
            joined = (begin, end)
        if joined is not None:
            yield joined

    def __str__(self) -> str:
        """Return it for errors: ``Mon,Tue 08:00-18:00 Europe/Berlin``."""
        days = "daily" if len(self.days) == len(DAYS) else ",".join(DAYS[each] for each in self.days)
        return f"{days} {shown_minutes(self.begin)}-{shown_minutes(self.end)} {self.zone}"


def shown_minutes(minutes: int) -> str:
    """Return *minutes* after midnight as ``HH:MM``."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _moment(day: date, minutes: int, zone: ZoneInfo) -> float:
    """Return a wall-clock time as s since the epoch."""
    if minutes == DAY_MINUTES:
        day, minutes = day + timedelta(days=1), 0
    return datetime.combine(day, time(minutes // 60, minutes % 60), zone).timestamp()
