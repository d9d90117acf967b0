"""``python -m benchmarks``: measure and print; see `benchmarks`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.measurements import GROUPS, Column, Group, Sample, Size, Work
from benchmarks.processes import BenchmarkFailed
from benchmarks.systems import Setting, running
from benchmarks.table import costs, memory, ratios, speeds

Done = dict[Group, dict[Work, dict[str, list[Sample]]]]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = [work.name for group in GROUPS for work in group.works]
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Tower beside a direct connection and beside a Go program, and print ratios.",
        epilog=f"names: {', '.join(names)}; the beginning of some will do",
    )
    made.add_argument("names", metavar="NAME", nargs="*", help="what to measure (default: everything)")
    made.add_argument(
        "--rounds", type=int, default=3, help="runs of each, interleaved (default: %(default)s)"
    )
    made.add_argument(
        "--seconds", type=float, default=2.0, help="requests in each run (default: %(default)s)"
    )
    made.add_argument("--mib", type=int, default=256, help="bytes in each run, MiB (default: %(default)s)")
    made.add_argument("--quick", action="store_true", help="one short round, to see that all of it works")
    made.add_argument("--json", metavar="FILE", type=Path, help="write every sample there too")
    made.add_argument("--keep", metavar="DIR", type=Path, help="keep what the programs wrote there")
    return made


def chosen(names: list[str]) -> list[tuple[Group, list[Work]]]:
    """Return the groups and rows that *names* mean.

    :raise BenchmarkFailed: a name means none.
    """
    known = [work.name for group in GROUPS for work in group.works]
    for name in names:
        if not any(other.startswith(name) for other in known):
            raise BenchmarkFailed(f"there is no {name!r}; there are {', '.join(known)}")
    picked = [
        (group, [work for work in group.works if not names or work.name.startswith(tuple(names))])
        for group in GROUPS
    ]
    return [(group, works) for group, works in picked if works]


def measure(
    setting: Setting, picked: list[tuple[Group, list[Work]]], rounds: int, size: Size
) -> tuple[Done, list[str]]:
    """Do everything, round by round; return the samples, and what failed."""
    done: Done = {
        group: {work: {column.label: [] for column in group.columns} for work in works}
        for group, works in picked
    }
    failures: list[str] = []
    for group, works in picked:
        for column in group.columns:
            _try(setting, works[0], column, Size(0.2, 8 << 20), [], failures)
    for turn in range(rounds):
        for group, works in picked:
            for work in works:
                shift = turn % len(group.columns)
                for column in group.columns[shift:] + group.columns[:shift]:
                    _try(setting, work, column, size, done[group][work][column.label], failures)
        print(f"round {turn + 1} of {rounds} is done", file=sys.stderr, flush=True)
    return done, failures


def _try(
    setting: Setting, work: Work, column: Column, size: Size, samples: list[Sample], failures: list[str]
) -> None:
    try:
        samples.append(work.run(setting, column, size))
    except BenchmarkFailed as e:
        failures.append(f"{work.name}, {column.label}: {e}")


def report(setting: Setting, done: Done, rounds: int, size: Size) -> str:
    """Return everything in Markdown."""
    words = [
        f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().partition('-')[0]},",
        f"Python {platform.python_version()}, Twisted {version('twisted')},",
        f"cryptography {version('cryptography')}; {time.strftime('%Y-%m-%d')}; medians of {rounds} rounds",
        f"of {size.seconds:g} s or {size.octets >> 20} MiB, load generator and backend on the same machine",
    ]
    parts = [" ".join(words), ""]
    for group, works in done.items():
        parts += [f"### {group.title}", ""]
        for table in (ratios, speeds, costs):
            parts += [*table(group, works), ""]
    return "\n".join([*parts, "### Memory", "", *memory(setting), ""])


def main() -> int:
    """Measure and print; 1 when something does not run."""
    options = parser().parse_args()
    size, rounds = Size(options.seconds, options.mib << 20), options.rounds
    if options.quick:
        size, rounds = Size(0.5, 64 << 20), 1
    folder = Path(tempfile.mkdtemp(prefix="tower-bench-"))
    try:
        picked = chosen(options.names)
        with running(folder) as setting:
            done, failures = measure(setting, picked, rounds, size)
            print(report(setting, done, rounds, size))
        if options.json:
            flat = [
                {"work": work.name, "column": label, **asdict(sample)}
                for works in done.values()
                for work, samples in works.items()
                for label, taken in samples.items()
                for sample in taken
            ]
            options.json.write_text(json.dumps(flat, indent=1) + "\n")
    except BenchmarkFailed as e:
        print(f"benchmarks: {e}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            shutil.copytree(folder, options.keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
