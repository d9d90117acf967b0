"""Metrics of node tunnels, with kube-apiserver's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from attrs import field, frozen
from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.clusters.node_status import NodeState
from tower.metrics.families import counter, gauge, gauges
from tower.nodes.tunneler import SSHTunneler

OPEN_COUNT = "ssh_tunnel_open_count"
OPEN_FAIL_COUNT = "ssh_tunnel_open_fail_count"
SYNC_DURATION = "apiserver_proxy_tunnel_sync_duration_seconds"
SYNC_LATENCY = "apiserver_proxy_tunnel_sync_latency_secs"
#: Not from kube-apiserver.
NODE_TUNNELS = "tower_node_tunnels"
_OPEN_HELP = "Counter of ssh tunnel total open attempts"
_SYNC_HELP = "The time since the last successful synchronization of the SSH tunnels for proxy requests."


@frozen
class Reading:
    """The values of one cluster.

    :ivar opens: attempts to open a tunnel.
    :ivar failures: failed ones.
    :ivar since_sync: time since the last listing of nodes, s; None while the tunneler is stopped.
    :ivar states: of the nodes.
    """

    opens: int = 0
    failures: int = 0
    since_sync: float | None = None
    states: Iterable[NodeState] = field(default=())

    @classmethod
    def of(cls, tunneler: SSHTunneler) -> Reading:
        """Return the values of *tunneler*'s cluster."""
        counters, states = tunneler.tunnels.counters, tunneler.tunnels.states()
        return cls(
            counters.open_count,
            counters.open_fail_count,
            tunneler.seconds_since_sync() if tunneler.running else None,
            [node.state for node in states],
        )


class TunnelCollector(Collector):
    """Collects the metrics of all clusters.

    Each metric of each cluster is made alone, and the reactor may run in between; see `tower.metrics.page`.

    :param read: called at each scrape; returns the values by cluster, and may make them one by one.
    """

    def __init__(self, read: Callable[[], Iterable[tuple[str, Reading]]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of each cluster, with its exact name, after empty ones while values are read."""
        found: list[tuple[str, Reading]] = []
        for pair in self._read():
            found.append(pair)
            yield Metric(OPEN_COUNT, _OPEN_HELP, "counter")
        for cluster, reading in found:
            yield counter(OPEN_COUNT, _OPEN_HELP, reading.opens, cluster=cluster)
        for cluster, reading in found:
            text = "Counter of ssh tunnel failed open attempts"
            yield counter(OPEN_FAIL_COUNT, text, reading.failures, cluster=cluster)
        for name, text in ((SYNC_DURATION, _SYNC_HELP), (SYNC_LATENCY, f"(Deprecated) {_SYNC_HELP}")):
            for cluster, reading in found:
                if reading.since_sync is not None:
                    yield gauge(name, text, reading.since_sync, cluster=cluster)
        for cluster, reading in found:
            numbers = Counter(reading.states)
            states: dict[str, float] = {state: numbers[state] for state in get_args(NodeState)}
            text = "Number of nodes by the state of their SSH tunnel."
            yield gauges(NODE_TUNNELS, text, "state", states, cluster=cluster)
