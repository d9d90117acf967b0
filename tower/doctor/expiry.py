"""Verdicts about certificates and credentials that expire, and about clocks."""

from __future__ import annotations

from datetime import UTC, datetime

from tower.doctor.findings import Verdict, fail, ok, warn
from tower.durations import describe_offset
from tower.trust.pki import CLOCK_SKEW

#: Difference of clocks below which they agree, as ``Date`` has whole seconds, and worth a warning, s.
_EQUAL, _NOTABLE = 2.0, 10.0


def compare_clocks(offset: float, peer: str) -> Verdict:
    """Return the verdict about this machine's clock, *offset* s ahead of that of *peer*."""
    if abs(offset) < _EQUAL:
        return ok(f"this machine's and that of {peer} agree")
    seen = f"this machine is {describe_offset(offset)} {peer}"
    cure = "set the clocks, on this machine with: timedatectl set-ntp true"
    if abs(offset) > CLOCK_SKEW:
        return fail(seen, cure)
    return warn(seen, cure) if abs(offset) > _NOTABLE else ok(seen)


def describe(moment: float) -> str:
    """Return a time, s since the epoch, as text."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def lasts(what: str, end: float | None, now: float, cure: str, *, soon: float | bool) -> Verdict:
    """Return the verdict about *what*, which ends at *end*; None: it does not end.

    :param soon: remaining lifetime that is worth a warning, s, see `tower.trust.expiry`; or whether it is.
    """
    if end is None:
        return ok(f"{what} does not expire")
    if end <= now:
        return fail(f"{what} expired on {describe(end)}", cure)
    seen = f"{what} is valid until {describe(end)}"
    is_soon = soon if isinstance(soon, bool) else end - now < soon
    return warn(seen, cure) if is_soon else ok(seen)
