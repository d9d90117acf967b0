"""The floors under the ratios: what a change must not take away.  They are in ``floors.toml``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from benchmarks.claims import CLAIMS
from benchmarks.rounds import Rounds
from benchmarks.rows import Row
from benchmarks.table import Done, claimed
from benchmarks.works import Size

FLOORS = Path(__file__).with_name("floors.toml")


def floors() -> dict[str, float]:
    """Return the floors, by the claim's name; where less is better, it is a ceiling."""
    said: dict[str, float] = tomllib.loads(FLOORS.read_text())["ratios"]
    return said


def guarded(bars: Mapping[str, float]) -> list[str]:
    """Return the names of the rows that have a floor."""
    return sorted({claim.row for claim in CLAIMS if claim.name in bars})


def hold(rounds: Rounds, bars: Mapping[str, float], count: int, size: Size) -> dict[str, Row]:
    """Measure *count* rounds, and what falls short as often again, because something may have disturbed it.

    :return: what then still falls short; see `shortfalls`.
    """
    rounds.measure(count, size)
    below = shortfalls(rounds.done, bars)
    if below:
        print(f"measured again: {'; '.join(below)}", file=sys.stderr, flush=True)
        rounds.repeat(set(below.values()), count, size)
    return shortfalls(rounds.done, bars)


def shortfalls(done: Done, bars: Mapping[str, float]) -> dict[str, Row]:
    """Return what falls short of its floor, one line each, and its row; empty if all is well.

    What should have been measured and was not falls short, too.
    """
    found = {}
    for row, claim in claimed(done):
        bar = bars.get(claim.name)
        if bar is None:
            continue
        seen = claim.measured(done[row], row.ours)
        if seen is None:
            found[f"{claim.name}: not measured"] = row
        elif not claim.reaches(seen.value, bar):
            kind = "ceiling" if claim.less else "floor"
            found[f"{claim.name}: {seen.value:.2f}, the {kind} is {bar:g}"] = row
    return found
