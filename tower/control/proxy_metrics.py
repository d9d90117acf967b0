"""The proxy's metrics that belong to no cluster, and the list of all its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import define
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from tower import __version__
from tower.metrics.families import counters, gauge, gauges, histogram
from tower.metrics.histogram import Histogram
from tower.metrics.page import registry_of
from tower.metrics.process import ProcessInfo
from tower.net.budget import Budget


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
        text = "Time of a write of records to the disk, with its wait for earlier ones."
        yield histogram("tower_store_write_seconds", text, self._store_writes)


def proxy_registry(*collectors: Collector | None) -> CollectorRegistry:
    """Return the registry of all metrics of the proxy: *collectors* and the process."""
    return registry_of(ProcessInfo("proxy", __version__), *filter(None, collectors))
