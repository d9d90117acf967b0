"""The proxy's metrics that belong to no cluster, and the list of all its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from shutil import disk_usage

from attrs import define, frozen
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorTime

from tower import __version__
from tower.clusters.records import Records
from tower.control.metrics.audit_metrics import AuditCollector
from tower.control.metrics.cluster_metrics import ClusterCollector
from tower.control.metrics.connection_metrics import SlotsCollector
from tower.control.metrics.limit_metrics import LimitsCollector
from tower.control.metrics.request_metrics import RequestMetrics
from tower.metrics.families import counters, gauge, gauges, histogram
from tower.metrics.histogram import Histogram
from tower.metrics.loop_lag import LoopLag
from tower.metrics.page import MetricsPage, registry_of
from tower.metrics.process import ProcessInfo
from tower.net.budget import Budget
from tower.net.connection_slots import Slots
from tower.nodes.clusters import NodeClusters
from tower.nodes.tunnel_metrics import TunnelCollector
from tower.rotation.assembly import ProxyKeys
from tower.store import IStore
from tower.store.audit_log import AccessLogCollector, AuditLog
from tower.trust.serving_certificate import ServingCertificate
from tower.tunnels import Tunnels
from tower.web.access.audit.audit import Audit
from tower.web.gateway.gateway import SharedLimits
from tower.web.limits.door_limits import DoorLimits


@define(eq=False, kw_only=True)
class ProxyCollector(Collector):
    """Limits, expiries and delays of the proxy itself.

    :param expiries: returns the expiry of each certificate by its name, s since the epoch.
    :param throttled: returns the number of rejections by the limit that was reached.
    :param rejections: returns the number of rejected agents by reason.
    :param free_space: returns the free space for the state directory, B.
    """

    _budget: Budget
    _store_writes: Histogram
    _expiries: Callable[[], Mapping[str, float]]
    _throttled: Callable[[], Mapping[str, float]]
    _rejections: Callable[[], Mapping[str, float]]
    _free_space: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        text = "Connections of agents that were not accepted."
        yield counters("tower_agent_rejections_total", text, "reason", self._rejections())
        text = (
            "Rejections because a limit was reached: requests in flight, connections, tunnels, or memory of "
            "unauthenticated clients."
        )
        yield counters("tower_throttled_total", text, "scope", self._throttled())
        text = "Expiry of a certificate of the proxy."
        yield gauges("tower_certificate_expiry_timestamp_seconds", text, "name", self._expiries())
        text = "Memory lent to streams for data that waits; its limit is --buffer-budget."
        yield gauge("tower_buffer_bytes", text, self._budget.lent)
        yield gauge("tower_buffer_limit_bytes", "Value of --buffer-budget.", self._budget.capacity)
        text = "Space for the state directory that this user can still write."
        yield gauge("tower_state_directory_free_bytes", text, self._free_space())
        text = "Time of a write of records to the store, with its wait for earlier ones."
        yield histogram("tower_store_write_seconds", text, self._store_writes)


def proxy_registry(*collectors: Collector | None) -> CollectorRegistry:
    """Return the registry of all metrics of the proxy: *collectors* and the process."""
    return registry_of(ProcessInfo("proxy", __version__), *filter(None, collectors))


@frozen
class ProxyMetrics:
    """All metrics of the proxy.

    :ivar lag: a service.
    :ivar requests: the meter of all gateways.
    """

    lag: LoopLag
    requests: RequestMetrics
    page: MetricsPage

    @classmethod
    def of(
        cls,
        reactor: IReactorTime,
        keys: ProxyKeys,
        serving: ServingCertificate,
        store: IStore,
        records: Records,
        tunnels: Tunnels,
        nodes: NodeClusters,
        budget: Budget,
        slots: Slots,
        shared: SharedLimits,
        audit: Audit | None,
        access_log: AuditLog | None,
        limits: DoorLimits,
        expiries: Callable[[], Mapping[str, float]] = dict,
    ) -> ProxyMetrics:
        """Return the metrics of these parts of the proxy; *expiries*: those of further certificates."""
        lag, requests = LoopLag(reactor), RequestMetrics(records.clusters)
        own = ProxyCollector(
            budget=budget,
            store_writes=store.write_times,
            expiries=lambda: {
                "serving": serving.not_after,
                "serving-ca": keys.authority.current.not_after,
                "users-ca": keys.users.current.not_after,
                **expiries(),
            },
            throttled=lambda: {
                "requests": requests.too_many,
                "connections": slots.ended + slots.refused,
                "tunnels": tunnels.counters.rejections["too-many-tunnels"],
                "memory": shared.unproven.evicted,
            },
            rejections=lambda: tunnels.counters.rejections,
            free_space=lambda: disk_usage(keys.state.path).free,
        )
        registry = proxy_registry(
            lag,
            own,
            ClusterCollector(records.clusters, tunnels, records.member_credentials),
            requests,
            TunnelCollector(nodes.readings),
            SlotsCollector(slots),
            LimitsCollector(limits),
            None if audit is None else AuditCollector(audit),
            None if access_log is None else AccessLogCollector(access_log),
        )
        return cls(lag, requests, MetricsPage(reactor, registry))
