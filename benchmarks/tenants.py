"""Two users of one proxy: the latency of one, alone and while the other has a thousand connections.

``python -m benchmarks.tenants`` prints a table.  Both users send requests as fast as they are answered, one
at a time on each connection: to different clusters, or to the same one.  With ``--check``, it fails if the
other user's p99 is more than `MOST` times as long as alone; with ``--watches``, the greedy user's requests
are watches that end at once.
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
from typing import TypeAlias

from benchmarks.processes import BenchmarkFailed, environment, run
from benchmarks.product import Product
from benchmarks.setting import Ground

#: How long the greedy user's requests run before those of the other one, and after them, s.
MARGIN = 1.0

#: Clusters: those of the greedy user and of the other one.
CASES = (("alpha", "beta"), ("alpha", "alpha"))

#: Longest p99 of the other user while the greedy one is active, in multiples of the p99 alone.
MOST = 2.0

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

    @property
    def ratio(self) -> float:
        """The p99 while the greedy user is active, in multiples of the p99 alone."""
        return self.median(self.beside, "p99") / self.median(self.alone, "p99")

    def row(self) -> list[str]:
        """Return the columns of the table."""
        values = [self.median(each, name) for each in (self.alone, self.beside) for name in ("p50", "p99")]
        share = statistics.median(self.shares)
        return [*(f"{value:.1f} ms" for value in values), f"{self.ratio:.1f}", f"{share:.0%}"]


#: Results by clusters of the greedy user and of the other one, and by connections of the other one.
Cases: TypeAlias = "dict[tuple[str, str, int], Samples]"


def shortfalls(samples: Cases) -> list[str]:
    """Return one line for each case whose ratio is more than `MOST`."""
    return [
        f"clusters: {_clusters(greedy, other)}, connections: {number}: "
        f"the ratio of p99 is {found.ratio:.2f}, the ceiling is {MOST:g}"
        for (greedy, other, number), found in samples.items()
        if found.ratio > MOST
    ]


def _clusters(greedy: str, other: str) -> str:
    return "one" if greedy == other else "two"


class Tenants:
    """A proxy with two clusters, and the two users' load generators.

    :param watches: whether the greedy user's requests are watches that end at once.
    """

    def __init__(
        self, folder: Path, stack: ExitStack, options: tuple[str, ...], *, watches: bool = False
    ) -> None:
        self._query = "?watch=1" if watches else ""
        self._ground = ground = Ground(folder, stack)
        self._product = Product(ground, options=options)
        for name in ("alpha", "beta"):
            self._product.cluster(name, name, ground.backend)
        self._users = {
            (user, cluster): self._product.user(cluster, user)
            for user in ("greedy", "jane")
            for cluster in ("alpha", "beta")
        }

    def _command(
        self, user: str, cluster: str, connections: int, seconds: float, query: str = ""
    ) -> list[str]:
        front, credential = self._users[user, cluster]
        sizes = ["-steady", f"-connections={connections}", f"-for={seconds:g}s"]
        return [str(self._ground.load), "requests", f"-url={front}/api/v1/pods{query}", *credential, *sizes]

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
        argv = self._command("greedy", cluster, connections, seconds, self._query)
        load = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        assert load.stdout is not None
        load.stdout.readline()
        return load


def measured(tenants: Tenants, options: argparse.Namespace, samples: Cases) -> None:
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
    """Measure and print; return 1 if a request fails or, with ``--check``, a ratio is too high."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.tenants", description=__doc__)
    made.add_argument(
        "--connections", type=int, default=1000, help="number for the greedy user (default: %(default)s)"
    )
    made.add_argument("--seconds", type=float, default=10.0, help="seconds of a run (default: %(default)g)")
    made.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    made.add_argument("--option", action="append", default=[], help="of tower-proxy; repeatable")
    made.add_argument("--watches", action="store_true", help="watches as requests of the greedy user")
    made.add_argument("--check", action="store_true", help=f"fail if a ratio of p99 is more than {MOST:g}")
    options = made.parse_args()
    samples: Cases = {}
    with tempfile.TemporaryDirectory(prefix="tower-tenants-") as folder, ExitStack() as stack:
        try:
            tenants = Tenants(Path(folder), stack, tuple(options.option), watches=options.watches)
            for _ in range(options.rounds):
                measured(tenants, options, samples)
        except BenchmarkFailed as e:
            print(f"benchmarks.tenants: {e}", file=sys.stderr)
            return 1
    print("| " + " | ".join(_HEAD) + " |")
    print("|---" * len(_HEAD) + "|")
    for (greedy, other, number), found in samples.items():
        print("| " + " | ".join([_clusters(greedy, other), str(number), *found.row()]) + " |")
    slow = shortfalls(samples) if options.check else []
    for line in slow:
        print(line, file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
