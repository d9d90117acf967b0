"""Users of an organization at the front door, compared with a kubeconfig of Tower: both at the same time.

``python -m benchmarks.door`` prints a table of ratios: those of all rounds together, and in parentheses the
medians of the rounds.  In each round both proxies serve 32 connections at once, so other programs disturb
both alike.  One proxy serves a user with a credential of Tower.  The other one serves a user with a token of
an OIDC provider, or with a certificate; it applies 1,000 access policies and 10,000 bindings of RBAC, and
writes an audit log at the level Metadata.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import BenchmarkFailed, environment
from benchmarks.systems import Systems

#: Cases: name, system, kind of user, number of objects that each connection gets in turn (0: one path).
CASES = (
    ("token", "tower-door", "oidc", 0),
    ("token, policies and bindings", "tower-rules", "oidc", 0),
    ("token, policies, bindings and audit", "tower-audited", "oidc", 0),
    ("token, policies, bindings and audit of ended requests", "tower-audited-once", "oidc", 0),
    ("certificate, policies, bindings and audit", "tower-audited", "x509", 0),
    ("token, policies, bindings and audit on standard output", "tower-audited-pipe", "oidc", 0),
    ("certificate, policies, bindings and audit on standard output", "tower-audited-pipe", "x509", 0),
    ("token, policies, bindings and audit; 100 objects", "tower-audited", "oidc", 100),
)

_HEAD = ("user", "proxy", "agent", "rate", "CPU of the proxy per request")
_BASE = "tower"


@dataclass
class Samples:
    """The results of one case, round by round: those of the kubeconfig, and those of the user."""

    base: list[dict[str, float]] = field(default_factory=list)
    ours: list[dict[str, float]] = field(default_factory=list)

    def row(self) -> list[str]:
        """Return the columns of the table."""
        ratios = []
        for part in ("proxy", "agent", "rate"):
            rounds = [ours[part] / base[part] for base, ours in zip(self.base, self.ours, strict=True)]
            whole = _whole(self.ours, part) / _whole(self.base, part)
            ratios.append(f"{whole:.2f}x ({statistics.median(rounds):.2f})")
        costs = [_whole(results, "proxy") for results in (self.ours, self.base)]
        return [*ratios, "{:.0f} µs instead of {:.0f} µs".format(*costs)]


def _whole(results: list[dict[str, float]], part: str) -> float:
    """Return a number for all rounds together; each request counts the same."""
    if part == "rate":
        return sum(result["rate"] for result in results)
    requests = sum(result["requests"] for result in results)
    return sum(result[part] * result["requests"] for result in results) / requests


class Pair:
    """A proxy that is compared with the one of the kubeconfig."""

    def __init__(self, systems: Systems, system: str) -> None:
        systems.start((_BASE, system))
        self._systems = systems
        self._both = systems[_BASE], systems[system]

    def measure(self, kind: str, paths: int, connections: int, seconds: float) -> list[dict[str, float]]:
        """Return rate and CPU per request (us) of the proxy and the agent, for the kubeconfig and the user.

        :raise BenchmarkFailed: a request fails.
        """
        sizes = ["-steady", "-wait", f"-connections={connections}", f"-for={seconds:g}s", f"-paths={paths}"]
        loads = [
            subprocess.Popen(
                [str(self._systems.ground.load), "requests", *sizes, *system.ways[way]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                text=True,
            )
            for system, way in zip(self._both, ("https", kind), strict=True)
        ]
        for load in loads:
            _line(load)
        before = self._cpu()
        for load in loads:
            assert load.stdin is not None
            load.stdin.write("\n")
            load.stdin.flush()
        results = [_line(load) for load in loads]
        for found, old, new in zip(results, before, self._cpu(), strict=True):
            found |= {part: (new[part] - old[part]) / found["requests"] * 1e6 for part in new}
        for load in loads:
            load.communicate()
        return results

    def _cpu(self) -> list[dict[str, float]]:
        return [{part: program.cpu for part, program in system.parts.items()} for system in self._both]


def _line(load: subprocess.Popen[str]) -> dict[str, float]:
    assert load.stdout is not None
    assert load.stderr is not None
    line = load.stdout.readline()
    if not line:
        raise BenchmarkFailed(load.stderr.read().strip()[-300:])
    found: dict[str, float] = json.loads(line)
    return found


def measured(systems: Systems, options: argparse.Namespace) -> dict[str, Samples]:
    """Measure all rounds.

    :raise BenchmarkFailed: a program does not run, or a request fails.
    """
    cases = [case for case in CASES if options.only in case[0]]
    pairs = {system: Pair(systems, system) for _, system, _, _ in cases}
    samples = {name: Samples() for name, _, _, _ in cases}
    for turn in range(-1, options.rounds):
        for name, system, kind, paths in cases:
            seconds = options.seconds if turn >= 0 else 0.3
            base, ours = pairs[system].measure(kind, paths, options.connections, seconds)
            if turn < 0:
                continue  # a warm-up
            samples[name].base.append(base)
            samples[name].ours.append(ours)
    return samples


def main() -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.door", description=__doc__)
    made.add_argument("--only", default="", help="words of the cases' names")
    made.add_argument(
        "--connections", type=int, default=32, help="number for both users (default: %(default)s)"
    )
    made.add_argument("--seconds", type=float, default=2.0, help="seconds of a run (default: %(default)g)")
    made.add_argument("--rounds", type=int, default=5, help="number of rounds (default: %(default)s)")
    options = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="tower-door-") as folder, ExitStack() as stack:
        try:
            samples = measured(Systems(Path(folder), stack), options)
        except BenchmarkFailed as e:
            print(f"benchmarks.door: {e}", file=sys.stderr)
            return 1
    print("| " + " | ".join(_HEAD) + " |")
    print("|---" * len(_HEAD) + "|")
    for name, found in samples.items():
        print("| " + " | ".join([name, *found.row()]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
