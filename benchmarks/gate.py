"""Check of ratios against their floors in ``floors.toml``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from benchmarks.claims import CLAIMS
from benchmarks.rounds import Rounds
from benchmarks.rows import PURE, Row
from benchmarks.table import Done, claimed
from benchmarks.works import Size

FLOORS = Path(__file__).with_name("floors.toml")


def floors() -> dict[str, float]:
    """Return the floors by claim name; if less is better, a floor is a ceiling."""
    said: dict[str, float] = tomllib.loads(FLOORS.read_text())["ratios"]
    return said


def lowered(part: float) -> dict[str, float]:
    """Return the floors times *part*, and the ceilings divided by it, for runs that are short.

    Bars of compiled modules never pass 1: in a short run they may gain less, but not be slower than Python.
    """
    bars = floors()
    found = {}
    for claim in CLAIMS:
        if claim.name not in bars:
            continue
        bar = bars[claim.name] / part if claim.less else bars[claim.name] * part
        if claim.against == PURE:
            bar = min(bar, 1.0) if claim.less else max(bar, 1.0)
        found[claim.name] = bar
    return found


def guarded(bars: Mapping[str, float]) -> list[str]:
    """Return the names of rows with a floor."""
    return sorted({claim.row for claim in CLAIMS if claim.name in bars})


def hold(rounds: Rounds, bars: Mapping[str, float], count: int, size: Size) -> dict[str, Row]:
    """Measure *count* rounds; repeat rows that miss a floor, in case another program disturbed them.

    :return: the remaining shortfalls; see `shortfalls`.
    """
    rounds.measure(count, size)
    below = shortfalls(rounds.done, bars)
    if below:
        print(f"measuring again: {'; '.join(below)}", file=sys.stderr, flush=True)
        rounds.repeat(set(below.values()), count, size)
    return shortfalls(rounds.done, bars)


def shortfalls(done: Done, bars: Mapping[str, float]) -> dict[str, Row]:
    """Return one line for each missed floor, with its row.

    A row with a floor that was not measured is a shortfall too.
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
