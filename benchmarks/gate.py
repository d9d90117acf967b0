"""The floors under the ratios: what a change must not take away.  They are in ``floors.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from benchmarks.table import Done, claimed

FLOORS = Path(__file__).with_name("floors.toml")


def floors() -> dict[str, float]:
    """Return the floors, by the claim's name; where less is better, it is a ceiling."""
    said: dict[str, float] = tomllib.loads(FLOORS.read_text())["ratios"]
    return said


def shortfalls(done: Done, bars: Mapping[str, float]) -> list[str]:
    """Return what was measured and falls short of its floor, one line each; empty if all is well.

    What should have been measured and was not falls short, too.
    """
    found = []
    for row, claim in claimed(done):
        bar = bars.get(claim.name)
        if bar is None:
            continue
        seen = claim.measured(done[row], row.ours)
        if seen is None:
            found.append(f"{claim.name}: not measured")
        elif not claim.reaches(seen.value, bar):
            kind = "ceiling" if claim.less else "floor"
            found.append(f"{claim.name}: {seen.value:.2f}, the {kind} is {bar:g}")
    return found
