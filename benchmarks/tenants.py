"""Two users of one proxy: the latency of one, alone and while the other has a thousand connections.

``python -m benchmarks.tenants`` prints a table.  Both users send requests as fast as they are answered, one
at a time on each connection: to different clusters, or to the same one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import BenchmarkFailed, environment, run
from benchmarks.product import Product
from benchmarks.setting import Ground

#: How long the greedy user's requests run before those of the other one, and after them, s.
MARGIN = 1.0

#: Clusters: those of the greedy user and of the other one.
CASES = (("alpha", "beta"), ("alpha", "alpha"))

#: Connections of the other user.
NUMBERS = (1, 32)

_HEAD = (
    "clusters",
    "connections",
    "p50 alone",
    "p99 alone",
    "p50 with both",
    "p99 with both",
    "ratio of p99",
    "share",
)


@dataclass
class Samples:
    """The results of one case: latencies alone, and concurrently with the greedy user."""

    alone: list[dict[str, float]] = field(default_factory=list)
    beside: list[dict[str, float]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def median(self, results: list[dict[str, float]], name: str) -> float:
        """Return the median over all rounds, ms."""
        return statistics.median(result[name] for result in results) / 1000

    def row(self) -> list[str]:
        """Return the columns of the table."""
        values = [self.median(each, name) for each in (self.alone, self.beside) for name in ("p50", "p99")]
        share = statistics.median(self.shares)
        return [*(f"{value:.1f} ms" for value in values), f"{values[3] / values[1]:.1f}", f"{share:.0%}"]


class Tenants:
    """A proxy with two clusters, and the two users' load generators."""

    def __init__(self, folder: Path, stack: ExitStack, options: tuple[str, ...]) -> None:
        self._ground = ground = Ground(folder, stack)
        self._product = Product(ground, options=options)
        for name in ("alpha", "beta"):
            self._product.cluster(name, name, ground.backend)
        self._users = {
            (user, cluster): self._product.user(cluster, user)
            for user in ("greedy", "jane")
            for cluster in ("alpha", "beta")
        }

    def _command(self, user: str, cluster: str, connections: int, seconds: float) -> list[str]:
        front, credential = self._users[user, cluster]
        sizes = ["-steady", f"-connections={connections}", f"-for={seconds:g}s"]
        return [str(self._ground.load), "requests", f"-url={front}/api/v1/pods", *credential, *sizes]

    def measure(self, cluster: str, connections: int, seconds: float) -> dict[str, float]:
        """Return rate and latencies (us) of the other user.

        :raise BenchmarkFailed: a request fails.
        """
        done = run(self._command("jane", cluster, connections, seconds))
        if done.returncode:
            raise BenchmarkFailed(f"load: {done.stderr.strip()}")
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return result

    def greedy(self, cluster: str, connections: int, seconds: float) -> subprocess.Popen[bytes]:
        """Start the greedy user's load; return when all connections have had an answer."""
        argv = self._command("greedy", cluster, connections, seconds)
        load = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        assert load.stdout is not None
        load.stdout.readline()
        return load


def measured(
    tenants: Tenants, options: argparse.Namespace, samples: dict[tuple[str, str, int], Samples]
) -> None:
    """Measure one round of all cases.

    :raise BenchmarkFailed: a request fails.
    """
    for greedy, other in CASES:
        for number in NUMBERS:
            found = samples.setdefault((greedy, other, number), Samples())
            found.alone.append(tenants.measure(other, number, options.seconds))
            load = tenants.greedy(greedy, options.connections, options.seconds + 2 * MARGIN)
            time.sleep(MARGIN)
            beside = tenants.measure(other, number, options.seconds)
            out, error = load.communicate()
            if load.returncode:
                raise BenchmarkFailed(f"load: {error.decode(errors='replace').strip()}")
            found.beside.append(beside)
            found.shares.append(beside["rate"] / (beside["rate"] + json.loads(out)["rate"]))


def main() -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.tenants", description=__doc__)
    made.add_argument(
        "--connections", type=int, default=1000, help="number for the greedy user (default: %(default)s)"
    )
    made.add_argument("--seconds", type=float, default=10.0, help="seconds of a run (default: %(default)g)")
    made.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    made.add_argument("--option", action="append", default=[], help="of tower-proxy; repeatable")
    options = made.parse_args()
    samples: dict[tuple[str, str, int], Samples] = {}
    with tempfile.TemporaryDirectory(prefix="tower-tenants-") as folder, ExitStack() as stack:
        try:
            tenants = Tenants(Path(folder), stack, tuple(options.option))
            for _ in range(options.rounds):
                measured(tenants, options, samples)
        except BenchmarkFailed as e:
            print(f"benchmarks.tenants: {e}", file=sys.stderr)
            return 1
    print("| " + " | ".join(_HEAD) + " |")
    print("|---" * len(_HEAD) + "|")
    for (greedy, other, number), found in samples.items():
        where = "one" if greedy == other else "two"
        print("| " + " | ".join([where, str(number), *found.row()]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
