"""Metrics of node tunnels, with kube-apiserver's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from attrs import field, frozen
from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.clusters.node_status import NodeState
from tower.nodes.tunneler import SSHTunneler

OPEN_COUNT = "ssh_tunnel_open_count"
OPEN_FAIL_COUNT = "ssh_tunnel_open_fail_count"
SYNC_DURATION = "apiserver_proxy_tunnel_sync_duration_seconds"
SYNC_LATENCY = "apiserver_proxy_tunnel_sync_latency_secs"
#: Not from kube-apiserver.
NODE_TUNNELS = "tower_node_tunnels"
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

    :param read: called at each scrape; returns the values by cluster.
    """

    def __init__(self, read: Callable[[], Mapping[str, Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, with their exact names."""
        opens = Metric(OPEN_COUNT, "Counter of ssh tunnel total open attempts", "counter")
        failures = Metric(OPEN_FAIL_COUNT, "Counter of ssh tunnel failed open attempts", "counter")
        duration = Metric(SYNC_DURATION, _SYNC_HELP, "gauge")
        latency = Metric(SYNC_LATENCY, f"(Deprecated) {_SYNC_HELP}", "gauge")
        tunnels = Metric(NODE_TUNNELS, "Number of nodes by the state of their SSH tunnel.", "gauge")
        for cluster, reading in sorted(self._read().items()):
            labels = {"cluster": cluster}
            opens.add_sample(OPEN_COUNT, labels, reading.opens)
            failures.add_sample(OPEN_FAIL_COUNT, labels, reading.failures)
            if reading.since_sync is not None:
                duration.add_sample(SYNC_DURATION, labels, reading.since_sync)
                latency.add_sample(SYNC_LATENCY, labels, reading.since_sync)
            numbers = Counter(reading.states)
            for state in get_args(NodeState):
                tunnels.add_sample(NODE_TUNNELS, {**labels, "state": state}, numbers[state])
        return opens, failures, duration, latency, tunnels
