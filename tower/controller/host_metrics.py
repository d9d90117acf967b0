"""Metrics of the access to the host cluster, and of the controller's work queue."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define
from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tower.controller.work_queue import WorkQueue
from tower.kube.rest.host_link import HostLink
from tower.metrics.families import counter, counters, gauge, gauges, histogram

#: Value of the label ``name`` of the work queue's metrics, which are client-go's.
_QUEUE = "cluster"


@define(eq=False)
class HostCollector(Collector):
    """Collects the metrics of one host cluster."""

    _link: HostLink
    _queue: WorkQueue

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        requests = self._link.requests
        text = "Requests to the host cluster's API server, by status class; none: without an answer."
        counted = Metric("tower_host_requests_total", text, "counter")
        counted.samples = [
            Sample(counted.name, {"verb": verb, "code_class": code_class}, count)
            for (verb, code_class), count in requests.counts.items()
        ]
        yield counted
        text = "Time of a request to the host cluster's API server, without watches."
        for verb, durations in requests.durations.items():
            yield histogram("tower_host_request_duration_seconds", text, durations, verb=verb)
        yield from self._followed()
        yield from self._worked()

    def _followed(self) -> Iterator[Metric]:
        members = self._link.reflectors.members
        followed: dict[str, float] = {}
        restarts = {"ended": 0, "expired": 0, "failed": 0}
        for each in members:
            name, is_followed = each.resource.name, each.synced and not each.failure
            followed[name] = min(followed.get(name, 1), is_followed)
            restarts["ended"] += each.counts.ends
            restarts["expired"] += each.counts.expirations
            restarts["failed"] += each.counts.failures
        text = "Whether changes of these objects of the host cluster are received."
        yield gauges("tower_host_synced", text, "resource", followed)
        text = "Watches of the host cluster that began again; expired: with a complete list (410)."
        yield counters("tower_host_watch_restarts_total", text, "reason", restarts)

    def _worked(self) -> Iterator[Metric]:
        queue = self._queue
        yield gauge("workqueue_depth", "Clusters that wait to be reconciled.", queue.depth, name=_QUEUE)
        yield counter("workqueue_adds_total", "Clusters added to the queue.", queue.adds, name=_QUEUE)
        text = "Failed attempts, each followed by another one."
        yield counter("workqueue_retries_total", text, queue.retries, name=_QUEUE)
        text = "Time of an attempt to reconcile a cluster."
        yield histogram("workqueue_work_duration_seconds", text, queue.durations, name=_QUEUE)
