"""Command ``python -m benchmarks``; see `benchmarks`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import gate, results
from benchmarks.processes import BenchmarkFailed
from benchmarks.rounds import NORMAL, QUICK, Rounds, chosen
from benchmarks.rows import GROUPS
from benchmarks.systems import Systems
from benchmarks.table import Done, claims, details, memory


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    names = [row.name for group in GROUPS for row in group.rows]
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Tower, Go programs and OpenSSH in interleaved runs, and print ratios.",
        epilog=f"names: {', '.join(names)}; a prefix selects all names that begin with it",
    )
    made.add_argument("names", metavar="NAME", nargs="*", help="workloads to measure (default: all)")
    made.add_argument("--rounds", type=int, help="number of interleaved rounds (default: 3; with --quick: 1)")
    made.add_argument(
        "--seconds",
        type=float,
        default=NORMAL.seconds,
        help="duration of request runs, s (default: %(default)g)",
    )
    made.add_argument(
        "--mib", type=int, default=NORMAL.octets >> 20, help="size of bulk runs, MiB (default: %(default)s)"
    )
    made.add_argument("--quick", action="store_true", help="short runs, to check that everything works")
    made.add_argument(
        "--check", action="store_true", help="measure workloads with a floor; fail if one misses it"
    )
    made.add_argument("--json", metavar="FILE", type=Path, help="output file for all samples")
    made.add_argument(
        "--read", metavar="FILE", type=Path, nargs="+", help="files of --json to print, without measuring"
    )
    made.add_argument("--keep", metavar="DIR", type=Path, help="directory for the logs of the programs")
    return made


def measured(options: argparse.Namespace) -> tuple[str, Done, list[str], list[str]]:
    """Measure; return the environment, the samples, the memory table, and failures or missed floors.

    :raise BenchmarkFailed: a program does not run.
    """
    size = QUICK if options.quick else replace(NORMAL, seconds=options.seconds, octets=options.mib << 20)
    count = options.rounds or (1 if options.quick else 3)
    bars = gate.floors() if options.check else {}
    groups = chosen(options.names or gate.guarded(bars))
    folder = Path(tempfile.mkdtemp(prefix="tower-bench-"))
    os.umask(0o077)
    try:
        with ExitStack() as stack:
            systems = Systems(folder, stack)
            rounds = Rounds(systems, groups)
            below = gate.hold(rounds, bars, count, size)
            used = memory(systems.idle, systems.memory())
            for name, why in systems.missing.items():
                print(f"{name} skipped: {why}", file=sys.stderr)
    finally:
        if options.keep:
            shutil.copytree(folder, options.keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    on = f"{results.machine()}; medians of {count} rounds of {size.seconds:g} s or {size.octets >> 20} MiB"
    failures = [f"failed: {failure}" for failure in rounds.failures]
    return on, rounds.done, used, [*failures, *(f"below its floor: {line}" for line in below)]


def report(on: str, done: Done, used: list[str]) -> str:
    """Return all tables in Markdown."""
    parts = [on, "", *claims(done), ""]
    for group in GROUPS:
        if table := details(group, done):
            parts += [f"### {group.title}", "", *table]
    if len(used) > 2:
        parts += ["### Memory", "", *used, ""]
    return "\n".join(parts)


def main() -> int:
    """Measure and print; return 1 if a program fails or, with ``--check``, a ratio misses its floor."""
    options = parser().parse_args()
    used: list[str] = []
    failures: list[str] = []
    try:
        if options.read:
            on, done = results.read(options.read)
        else:
            on, done, used, failures = measured(options)
    except BenchmarkFailed as e:
        print(f"benchmarks: {e}", file=sys.stderr)
        return 1
    print(report(on, done, used))
    if options.json:
        results.write(options.json, on, done)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
