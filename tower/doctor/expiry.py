"""Verdicts about certificates and credentials that expire."""

from __future__ import annotations

from datetime import UTC, datetime

from tower.doctor.findings import Verdict, fail, ok, warn

#: Remaining lifetime that is worth a warning, s.
SOON = 14 * 86400.0


def describe(moment: float) -> str:
    """Return a time, s since the epoch, for people."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def lasts(what: str, end: float | None, now: float, cure: str, soon: float = SOON) -> Verdict:
    """Return the verdict about *what*, which ends at *end*; None: it does not end."""
    if end is None:
        return ok(f"{what} does not expire")
    if end <= now:
        return fail(f"{what} expired on {describe(end)}", cure)
    seen = f"{what} is valid until {describe(end)}"
    return warn(seen, cure) if end - now < soon else ok(seen)
