"""``python -m benchmarks``: measure and print; see `benchmarks`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import gate, results
from benchmarks.processes import BenchmarkFailed
from benchmarks.rounds import NORMAL, QUICK, Rounds, chosen
from benchmarks.rows import GROUPS
from benchmarks.systems import Systems
from benchmarks.table import Done, claims, details, memory
from benchmarks.works import Size


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = [row.name for group in GROUPS for row in group.rows]
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Tower beside Go programs and OpenSSH, and print ratios.",
        epilog=f"names: {', '.join(names)}; the beginning of some will do",
    )
    made.add_argument("names", metavar="NAME", nargs="*", help="what to measure (default: everything)")
    made.add_argument(
        "--rounds", type=int, default=3, help="runs of each, interleaved (default: %(default)s)"
    )
    made.add_argument(
        "--seconds", type=float, default=NORMAL.seconds, help="requests in each run (default: %(default)s)"
    )
    made.add_argument(
        "--mib", type=int, default=NORMAL.octets >> 20, help="bytes in each run, MiB (default: %(default)s)"
    )
    made.add_argument("--quick", action="store_true", help="one short round, to see that all of it works")
    made.add_argument("--check", action="store_true", help="fail when a ratio is below its floor")
    made.add_argument("--json", metavar="FILE", type=Path, help="write every sample there too")
    made.add_argument(
        "--read", metavar="FILE", type=Path, nargs="+", help="measure nothing, print what such files say"
    )
    made.add_argument("--keep", metavar="DIR", type=Path, help="keep what the programs wrote there")
    return made


def measured(options: argparse.Namespace) -> tuple[str, Done, list[str], list[str]]:
    """Measure; return on what, the samples, the table of memory, and what failed.

    :raise BenchmarkFailed: something does not run at all.
    """
    size = Size(options.seconds, options.mib << 20, NORMAL.watching, NORMAL.agents)
    count = options.rounds
    if options.quick:
        size, count = QUICK, 1
    groups = chosen(options.names)
    folder = Path(tempfile.mkdtemp(prefix="tower-bench-"))
    os.umask(0o077)
    try:
        with ExitStack() as stack:
            systems = Systems(folder, stack)
            rounds = Rounds(systems, groups)
            rounds.measure(count, size)
            used = memory(systems.idle, systems.memory())
            for name, why in systems.missing.items():
                print(f"without {name}: {why}", file=sys.stderr)
    finally:
        if options.keep:
            shutil.copytree(folder, options.keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    on = f"{results.machine()}; medians of {count} rounds of {size.seconds:g} s or {size.octets >> 20} MiB"
    return on, rounds.done, used, rounds.failures


def report(on: str, done: Done, used: list[str]) -> str:
    """Return everything in Markdown."""
    parts = [on, "", *claims(done), ""]
    for group in GROUPS:
        if table := details(group, done):
            parts += [f"### {group.title}", "", *table]
    if len(used) > 2:
        parts += ["### Memory", "", *used, ""]
    return "\n".join(parts)


def main() -> int:
    """Measure and print; 1 when something does not run or, with ``--check``, is below its floor."""
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
        print(f"failed: {failure}", file=sys.stderr)
    below = gate.shortfalls(done, gate.floors()) if options.check else []
    for line in below:
        print(f"below its floor: {line}", file=sys.stderr)
    return 1 if failures or below else 0


if __name__ == "__main__":
    sys.exit(main())
