"""Metrics of clusters, their tunnels and their streams.

Each metric of each cluster is made alone, so that `tower.metrics.page` can let the reactor run in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define
from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster
from tower.clusters.condition_types import AVAILABLE
from tower.clusters.member_credentials import MemberCredentials
from tower.conch.connection.traffic import TrafficTotals
from tower.kube.member_status import API_SERVER
from tower.metrics.families import counter, counters, gauge, gauges
from tower.tunnels import SSH, Tunnels
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2

#: Protocols of the tunnels of each type of cluster.
_PROTOCOLS = {"proxy": (TOWER_V2, KUBESPHERE_V1), "ssh": (SSH,)}


@define(eq=False)
class ClusterCollector(Collector):
    """Collects the metrics of all clusters that exist at the time of the scrape."""

    _clusters: Clusters
    _tunnels: Tunnels
    _credentials: MemberCredentials

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of each cluster, all clusters of one metric in succession."""
        clusters = self._clusters.list()
        totals: dict[str, TrafficTotals] = {}
        for family in (
            self._available,
            self._reachable,
            self._last_seen,
            self._tunnel_counts,
            self._round_trips,
            self._disconnects,
        ):
            for cluster in clusters:
                yield from family(cluster)
        for cluster in clusters:
            found = totals[cluster.name] = self._tunnels.counters.of(cluster.name).traffic.totals()
            yield gauge(
                "tower_streams",
                "Open streams into the cluster, idle ones included.",
                found.streams,
                cluster=cluster.name,
            )
        for cluster in clusters:
            found = totals[cluster.name]
            yield counters(
                "tower_stream_bytes_total",
                "Bytes of all streams of the cluster, without the tunnels' own protocol.",
                "direction",
                {"to_member": found.sent, "from_member": found.received},
                cluster=cluster.name,
            )
        for cluster in clusters:
            yield counter(
                "tower_stream_stall_seconds_total",
                "Time that data waited because its receiver did not read, of all streams together.",
                totals[cluster.name].stalled,
                cluster=cluster.name,
            )
        for family in (self._open_failures, self._credential_expiry):
            for cluster in clusters:
                yield from family(cluster)

    def _available(self, cluster: Cluster) -> Iterable[Metric]:
        if not cluster.enabled:
            return
        condition = cluster.condition(AVAILABLE)
        yield gauge(
            "tower_cluster_available",
            "Whether the cluster's condition Available is True; a disabled cluster has no sample.",
            condition is not None and condition.status == "True",
            cluster=cluster.name,
        )

    def _reachable(self, cluster: Cluster) -> Iterable[Metric]:
        condition = cluster.condition(API_SERVER.condition)
        if cluster.enabled and condition is not None and condition.status != "Unknown":
            yield gauge(
                "tower_cluster_member_reachable",
                "Whether the member's API server answers; no sample while this is unknown.",
                condition.status == "True",
                cluster=cluster.name,
            )

    def _last_seen(self, cluster: Cluster) -> Iterable[Metric]:
        seen = self._tunnels.last_seen(cluster.name)
        if seen is not None:
            yield gauge(
                "tower_cluster_last_seen_timestamp_seconds",
                "Time when the cluster last had a tunnel that answers.",
                seen,
                cluster=cluster.name,
            )

    def _tunnel_counts(self, cluster: Cluster) -> Iterable[Metric]:
        numbers: dict[str, float] = dict.fromkeys(_PROTOCOLS[cluster.type], 0)
        for tunnel in self._tunnels.live(cluster.name):
            numbers[tunnel.protocol] = numbers.get(tunnel.protocol, 0) + 1
        yield gauges("tower_tunnels", "Open tunnels.", "protocol", numbers, cluster=cluster.name)

    def _round_trips(self, cluster: Cluster) -> Iterable[Metric]:
        live, is_silent = self._tunnels.live(cluster.name), self._tunnels.is_silent
        times = [tunnel.round_trip for tunnel in live if not is_silent(tunnel)]
        if any(times):
            yield gauge(
                "tower_tunnel_rtt_seconds",
                "Round trip of the cluster's slowest tunnel.",
                max(times),
                cluster=cluster.name,
            )

    def _disconnects(self, cluster: Cluster) -> Iterable[Metric]:
        yield counters(
            "tower_tunnel_disconnects_total",
            "Lost tunnels.",
            "reason",
            self._tunnels.counters.of(cluster.name).disconnects,
            cluster=cluster.name,
        )

    def _open_failures(self, cluster: Cluster) -> Iterable[Metric]:
        yield counters(
            "tower_stream_open_failures_total",
            "Streams for users that were not opened.",
            "reason",
            self._tunnels.counters.of(cluster.name).open_failures,
            cluster=cluster.name,
        )

    def _credential_expiry(self, cluster: Cluster) -> Iterable[Metric]:
        status, facts = self._tunnels.member_status(cluster.name), self._credentials.facts(cluster)
        expires = None if status is None else status.credential_expires
        if expires is None and facts is not None:
            expires = facts.expires
        if expires is not None:
            yield gauge(
                "tower_member_credential_expiry_timestamp_seconds",
                "Expiry of the credential for the member's API server; no sample if it is unknown.",
                expires,
                cluster=cluster.name,
            )
