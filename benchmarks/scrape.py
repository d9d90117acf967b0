"""``python -m benchmarks.scrape``: how long a scrape of many clusters keeps the reactor from other work.

The clusters are in memory, with every series that a cluster can have and with watches in progress; the
metrics port, its client and the reactor are real.  A timer runs as often as the reactor lets it, and the
longest gap between two of its calls is printed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, cast, get_args

from attrs import define, frozen
from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.utils import getProcessOutput

from tower.clusters import Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import NodeState
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.control.metrics.cluster_metrics import ClusterCollector
from tower.control.metrics.request_metrics import RequestMetrics
from tower.metrics.page import MetricsPage, registry_of
from tower.metrics.port import MetricsPort
from tower.nodes.tunnel_metrics import Reading, TunnelCollector
from tower.reactor.interfaces import IReactor
from tower.store import MemoryStore
from tower.trust.vault import Vault
from tower.tunnels import Tunnel, Tunnels
from tower.web.gateway.gateway import Gateway

HOST = "127.0.0.1"
WATCH = b"/api/v1/pods?watch=true"
NODES = 100  # in a cluster of type ssh
STATUSES = (0, 101, 200, 302, 404, 500)

#: Prints size, series and time of a page; a process, as a thread would compete for the interpreter.
CLIENT = """
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
began = time.perf_counter()
connection.request("GET", "/metrics")
text = connection.getresponse().read()
print(len(text), text.count(b"\\ntower_"), time.perf_counter() - began)
"""


@define(eq=False)
class _Tunnel:
    """A tunnel without a connection."""

    name: str
    protocol: str = SSHTunnel.protocol
    draining: bool = False
    round_trip: float = 0.005
    member_status: None = None
    on_change: Callable[[], None] = lambda: None


@frozen
class _Fields:
    """The headers of a request without an upgrade."""

    upgrade: bytes = b""


@frozen
class _Watch:
    """A watch in progress; each has another target."""

    cluster: str
    target: bytes
    method: bytes = b"GET"
    fields: _Fields = _Fields()


@define(eq=False, weakref_slot=True)
class _Gateway:
    """A gateway with requests in progress."""

    current: list[_Watch]


@frozen
class Busy:
    """The metrics of some clusters.

    :ivar gateway: has the requests in progress; the metrics do not keep it.
    """

    registry: CollectorRegistry
    gateway: _Gateway


def busy(reactor: IReactorTime, count: int, inflight: int) -> Busy:
    """Return the metrics of *count* clusters that have had requests of every kind, and as many with nodes.

    :param inflight: number of watches in progress.
    """
    clusters = Clusters(MemoryStore(), None, reactor)
    tunnels = Tunnels(reactor, reactor.seconds)
    requests = RequestMetrics(clusters)
    for number in range(count):
        name = f"cluster-{number:04}"
        clusters.add(name)
        tunnels.add(cast(Tunnel, _Tunnel(name)))
        for method, target in ((b"GET", b"/api"), (b"PUT", b"/api"), (b"GET", WATCH)):
            for code in STATUSES:
                for by_member in (True, False):
                    requests.finished.append((name, method, target, b"", code, by_member, 0.0, 0.01, 0.02))
        requests.count()
    watches = [
        _Watch(
            f"cluster-{number % count:04}",
            b"/clusters/cluster-%04d%b&resourceVersion=%d" % (number % count, WATCH, number),
        )
        for number in range(inflight)
    ]
    gateway = _Gateway(watches)
    requests.watch(cast(Gateway, gateway))
    vault = Vault(Path(tempfile.mkdtemp()) / "key", reactor.seconds)
    credentials = MemberCredentials(MemoryStore(), vault)
    states = list(get_args(NodeState)) * (NODES // len(get_args(NodeState)))
    nodes = TunnelCollector(
        lambda: ((f"nodes-{number:04}", Reading(9, 1, 0.5, states)) for number in range(count))
    )
    registry = registry_of(ClusterCollector(clusters, tunnels, credentials), requests, nodes)
    return Busy(registry, gateway)


@define
class Gaps:
    """The longest time between two turns of the reactor, s, and the longest processor time of a turn."""

    _reactor: IReactorTime
    longest: float = 0.0
    longest_work: float = 0.0
    _last: float = 0.0
    _last_work: float = 0.0

    def start(self) -> None:
        """Measure until the reactor stops."""
        self._last, self._last_work = perf_counter(), thread_time()
        self._turn()

    def _turn(self) -> None:
        now, work = perf_counter(), thread_time()
        self.longest = max(self.longest, now - self._last)
        self.longest_work = max(self.longest_work, work - self._last_work)
        self._last, self._last_work = now, work
        self._reactor.callLater(0, self._turn)


async def _measure(reactor: IReactor, count: int, inflight: int, scrapes: int) -> None:
    load = busy(reactor, count, inflight)
    port = MetricsPort(reactor, MetricsPage(reactor, load.registry), HOST, 0)
    port.startService()
    gc.collect()
    gc.freeze()  # as the proxy does after its start
    gaps = Gaps(reactor)
    gaps.start()
    for number in range(scrapes):
        gaps.longest = gaps.longest_work = 0.0
        output = await getProcessOutput(sys.executable, ["-c", CLIENT, str(port.port)], reactor=reactor)
        size, series, took = output.split()
        print(
            f"scrape {number + 1}: {count} clusters, {inflight} watches, {int(series)} series, "
            f"{int(size) / 1e6:.1f} MB in {float(took) * 1000:.0f} ms; longest pause of the reactor: "
            f"{gaps.longest * 1000:.1f} ms, of processor time: {gaps.longest_work * 1000:.1f} ms"
        )
    port.stopService()


def main() -> None:
    """Measure, and print a line for each scrape."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrape", description=__doc__)
    parser.add_argument("--clusters", type=int, default=1000, help="number of clusters (default: 1000)")
    parser.add_argument("--watches", type=int, default=5000, help="requests in progress (default: 5000)")
    parser.add_argument("--scrapes", type=int, default=5, help="number of scrapes (default: 5)")
    options = parser.parse_args()
    from twisted.internet import reactor as installed

    reactor: Any = installed

    def start() -> None:
        done = Deferred.fromCoroutine(_measure(reactor, options.clusters, options.watches, options.scrapes))
        done.addErrback(lambda failure: print(failure.getTraceback()))
        done.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(start)
    reactor.run()


if __name__ == "__main__":
    main()
