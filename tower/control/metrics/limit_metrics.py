"""Metrics of the limits of requests in flight; see `tower.web.limits`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.metrics.families import counters, gauges
from tower.web.limits.door_limits import DoorLimits


class LimitsCollector(Collector):
    """Metrics of *limits*."""

    def __init__(self, limits: DoorLimits) -> None:
        self._limits = limits

    def collect(self) -> Iterable[Metric]:
        """Return seats, requests that wait, and rejections by reason."""
        limits = self._limits
        kinds = {"read-only": limits.reading, "mutating": limits.mutating}
        pools = {kind: pool for kind, pool in kinds.items() if pool is not None}
        text = "Seats of --max-requests-inflight and --max-mutating-requests-inflight that are taken."
        used = {kind: float(pool.used) for kind, pool in pools.items()}
        text_of_limits = "Values of --max-requests-inflight and --max-mutating-requests-inflight."
        sizes = {kind: float(pool.limit) for kind, pool in pools.items()}
        waiting = {kind: float(pool.waiting) for kind, pool in pools.items()}
        in_clusters = None if limits.by_cluster is None else limits.by_cluster.total
        caps = {"cluster": in_clusters, "user": limits.by_user, "streams": limits.streams}
        refused = {reason: float(cap.refused) for reason, cap in caps.items() if cap is not None}
        refused["queue-full"] = float(sum(pool.refused for pool in pools.values()))
        refused["time-out"] = float(limits.timed_out)
        return (
            gauges("tower_request_seats", text, "kind", used),
            gauges("tower_request_seats_limit", text_of_limits, "kind", sizes),
            gauges("tower_requests_waiting", "Requests that wait for a seat.", "kind", waiting),
            counters("tower_requests_limited_total", "Answers with 429, by limit.", "reason", refused),
        )
