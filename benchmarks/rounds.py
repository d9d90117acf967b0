"""Rounds of runs: in each round, each row runs on each of its systems in turn."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from benchmarks.processes import BenchmarkFailed
from benchmarks.rows import GROUPS, Group, Row
from benchmarks.systems import Systems
from benchmarks.works import Column, Numbers, Size

NORMAL = Size(seconds=2.0, octets=256 << 20, watching=4.0, agents=1000)
QUICK = Size(seconds=0.5, octets=64 << 20, watching=2.0, agents=300)

#: Size of the warm-up run of each system, which is not counted.
_WARM = Size(seconds=0.2, octets=8 << 20, watching=0.5, agents=0)


def chosen(names: Sequence[str]) -> list[Group]:
    """Return the groups with the rows whose names begin with one of *names*; all if *names* is empty.

    :raise BenchmarkFailed: a name matches no row.
    """
    known = [row.name for group in GROUPS for row in group.rows]
    for name in names:
        if not any(other.startswith(name) for other in known):
            raise BenchmarkFailed(f"there is no {name!r}; there are {', '.join(known)}")
    picked = [
        Group(
            group.title,
            tuple(row for row in group.rows if not names or row.name.startswith(tuple(names))),
            group.late,
        )
        for group in GROUPS
    ]
    return [group for group in picked if group.rows]


@dataclass
class Rounds:
    """The groups to measure, and the results so far.

    :ivar done: the samples of each row, by column label.
    :ivar failures: failed runs, one line each.
    """

    systems: Systems
    groups: list[Group]
    done: dict[Row, dict[str, list[Numbers]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def measure(self, count: int, size: Size) -> None:
        """Measure all groups, one after the other, *count* rounds each.

        :raise BenchmarkFailed: a system does not run.
        """
        for group in self.groups:
            if not group.late:
                self._start(group)
        for group in self.groups:
            self._start(group)
            self._warm_up(group)
            for turn in range(count):
                for row in group.rows:
                    self._turn(row, turn, size)
                print(f"{group.title}: round {turn + 1} of {count} done", file=sys.stderr, flush=True)

    def repeat(self, rows: Collection[Row], count: int, size: Size) -> None:
        """Measure *rows* for *count* more rounds; earlier samples are kept."""
        for turn in range(count):
            for row in rows:
                self._turn(row, turn, size)

    def _start(self, group: Group) -> None:
        for row in group.rows:
            self.systems.start(column.system for column in row.columns if column.system)
            self.done.setdefault(row, {column.label: [] for column in row.columns})

    def _warm_up(self, group: Group) -> None:
        used = set()
        for row in group.rows:
            for column in row.columns:
                if column.system and (column.system, column.kind) not in used:
                    used.add((column.system, column.kind))
                    self._run(row, column, _WARM)

    def _turn(self, row: Row, turn: int, size: Size) -> None:
        """Run *row* on all its columns, starting with a different one each round."""
        shift = turn % len(row.columns)
        for column in row.columns[shift:] + row.columns[:shift]:
            said = self._run(row, column, size)
            if said is not None:
                self.done[row][column.label].append(said)

    def _run(self, row: Row, column: Column, size: Size) -> Numbers | None:
        if column.system in self.systems.missing:
            return None
        try:
            return row.work.run(self.systems, column, size)
        except BenchmarkFailed as e:
            self.failures.append(f"{row.name}, {column.label}: {e}")
            return None
