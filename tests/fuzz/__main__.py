"""Fuzz for a while, or try one input again; see `tests.fuzz`."""

from __future__ import annotations

import argparse
import random
import sys
import traceback

from benchmarks.results import machine
from tests.fuzz.engine import attempt, fuzz
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run; 1 when something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="seed of the inputs (default: a new one each time)")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this; repeatable")
    parser.add_argument("--replay", metavar="HEX", help="try this input instead; - for the empty one")
    parser.add_argument("--chance", default="0", help="the finding's chance, with --replay")
    options = parser.parse_args()
    targets = [TARGETS[name] for name in options.target or TARGETS]
    if options.replay is not None:
        data = bytes.fromhex(options.replay.replace("-", ""))
        errors = [error for each in targets if (error := attempt(each, data, options.chance)) is not None]
        for error in errors:
            traceback.print_exception(error)
        return 1 if errors else 0
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"fuzzing for {options.seconds:g} s, --seed {seed}; {machine()}", flush=True)
    counts, findings = fuzz(targets, options.seconds, seed)
    for name, count in counts.items():
        print(f"{name:>20}: {count} inputs")
    for finding in findings:
        print(f"BROKEN {finding}\n")
    print(f"{sum(counts.values())} inputs")
    # as trial closes its runs, so that a sum of results counts these too
    well = f"successes={len(targets) - len(findings)}"
    print(f"FAILED (failures={len(findings)}, {well})" if findings else f"PASSED ({well})")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
