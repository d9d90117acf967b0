"""Durations as text for readers; `tower.options.values` has the form of options."""

from __future__ import annotations


def human_duration(seconds: float) -> str:
    """Return a duration of *seconds* in the two-unit form that kubectl prints as AGE."""
    whole = int(seconds)
    if whole < 0:
        return "0s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d")


def _two(first: int, unit: str, second: int, lesser: str) -> str:
    return f"{first}{unit}{second}{lesser}" if second else f"{first}{unit}"


def describe_offset(offset: float) -> str:
    """Return the offset of a clock, s, such as ``65m behind``; negative: it is behind."""
    return f"{human_duration(round(abs(offset)))} {'behind' if offset < 0 else 'ahead of'}"
