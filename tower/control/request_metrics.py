"""Metrics of users' requests, counted as their gateway reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tower.clusters import Clusters
from tower.errors import AUTH_FAILURES, POLICY_REFUSALS, Forbidden, Unauthorized
from tower.kube.status import StatusError
from tower.metrics.families import counters as counters_of
from tower.metrics.families import gauges, histogram
from tower.metrics.histogram import Histogram
from tower.web.gateway.observer import (
    EXEC,
    LOGS,
    PORT_FORWARD,
    RAW,
    READ,
    SHORT,
    STREAM,
    WATCH,
    WRITE,
    Observation,
)

REQUESTS = "tower_requests_total"
DURATION = "tower_request_duration_seconds"
FIRST_BYTE = "tower_first_byte_seconds"
INFLIGHT = "tower_requests_inflight"
AUTH = "tower_auth_failures_total"
POLICY = "tower_policy_refusals_total"

_REQUESTS_TEXT = (
    "Finished requests by whether Tower or the member made the answer; code_class none: the client "
    "disconnected before it."
)
_KINDS = (SHORT, WATCH, EXEC, PORT_FORWARD, LOGS, RAW)
_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")

#: Verb, class of the status, whether the member answered: always exported, so that rates begin at 0.
_ALWAYS = tuple(
    (verb, code, by_member)
    for verb in (READ, WRITE, STREAM)
    for code, by_member in ((2, True), (5, True), (5, False))
)


class RequestCounters:
    """The counters of one cluster, or of Tower's own API.

    :ivar finished: number of requests by verb, class of the status, and whether the member answered.
    :ivar durations: of requests that are neither watches nor streams.
    :ivar first_bytes: times until the head of the answer was sent.
    :ivar inflight: number of current requests by kind.
    """

    __slots__ = ("durations", "finished", "first_bytes", "inflight")

    def __init__(self) -> None:
        self.finished = dict.fromkeys(_ALWAYS, 0)
        self.durations = Histogram()
        self.first_bytes = Histogram()
        self.inflight: dict[str, float] = dict.fromkeys(_KINDS, 0)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return not any(self.inflight.values())

    def samples(self, cluster: str) -> Iterator[Sample]:
        """Yield the samples of `finished`."""
        for (verb, code, by_member), count in self.finished.items():
            labels = {
                "cluster": cluster,
                "verb": verb,
                "code_class": _CLASSES[code],
                "source": "member" if by_member else "tower",
            }
            yield Sample(REQUESTS, labels, count)


class RequestMetrics(Collector):
    """The observer of all gateways, and the collector of its counters; see `tower.web.gateway.observer`.

    A request for a cluster that does not exist counts like one for Tower's own API, whose ``cluster`` is
    empty.

    :ivar too_many: number of requests rejected because a cluster had too many in flight.
    """

    def __init__(self, clusters: Clusters, seconds: Callable[[], float] = monotonic) -> None:
        self._clusters = clusters
        self.seconds = seconds
        self._counters = {"": RequestCounters()}
        self._auth_failures: dict[str, float] = dict.fromkeys(AUTH_FAILURES, 0)
        self._policy_refusals: dict[str, float] = dict.fromkeys(POLICY_REFUSALS, 0)
        self.too_many = 0

    def begun(self, observation: Observation) -> None:
        """See `RequestObserver.begun`."""
        counters = self._counters.get(observation.cluster)
        if counters is None:
            counters = self._of(observation)
        counters.inflight[observation.kind] += 1

    def ended(self, observation: Observation) -> None:
        """See `RequestObserver.ended`."""
        counters = self._counters.get(observation.cluster)
        if counters is None:
            counters = self._of(observation)
        kind, began = observation.kind, observation.began
        key = observation.verb_class, observation.code // 100, observation.by_member
        counters.finished[key] = counters.finished.get(key, 0) + 1
        if observation.error is not None:
            self._refused(observation.error)
        if kind:
            counters.inflight[kind] -= 1
            if kind == SHORT:
                counters.durations.observe(observation.ended_at - began)
            if observation.answered_at:
                counters.first_bytes.observe(observation.answered_at - began)

    def _refused(self, error: BaseException) -> None:
        if isinstance(error, Unauthorized):
            self._auth_failures[error.kind] += 1
        elif isinstance(error, Forbidden):
            self._policy_refusals[error.kind] += 1
        elif isinstance(error, StatusError):
            if error.code == 403:
                self._policy_refusals["other"] += 1
            elif error.code == 429:
                self.too_many += 1

    def _of(self, observation: Observation) -> RequestCounters:
        """Return the counters of a request for a cluster that has none yet."""
        cluster = observation.cluster
        if not observation.kind and self._clusters.get(cluster) is None:
            return self._counters[""]
        self._forget_removed()
        counters = self._counters[cluster] = RequestCounters()
        return counters

    def _forget_removed(self) -> None:
        """Forget clusters that do not exist any more, once their last request has ended."""
        for name, counters in list(self._counters.items()):
            if name and counters.is_idle and self._clusters.get(name) is None:
                del self._counters[name]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of each cluster, all clusters of one metric in succession."""
        self._forget_removed()
        names = ["", *(cluster.name for cluster in self._clusters.list())]
        every = [(name, self._counters.get(name) or RequestCounters()) for name in names]
        for name, counters in every:
            metric = Metric(REQUESTS, _REQUESTS_TEXT, "counter")
            metric.samples = list(counters.samples(name))
            yield metric
        for name, counters in every:
            text = "Time from the request's head to the end of the answer, without watches and streams."
            yield histogram(DURATION, text, counters.durations, cluster=name)
        for name, counters in every:
            text = "Time from the request's head to the head of the answer."
            yield histogram(FIRST_BYTE, text, counters.first_bytes, cluster=name)
        for name, counters in every:
            yield gauges(INFLIGHT, "Current requests.", "kind", counters.inflight, cluster=name)
        text = "Requests without a valid credential."
        yield counters_of(AUTH, text, "reason", self._auth_failures)
        text = "Requests of authenticated users that Tower itself denied."
        yield counters_of(POLICY, text, "reason", self._policy_refusals)
