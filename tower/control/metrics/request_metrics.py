"""Metrics of users' requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from weakref import WeakSet

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from tower.clusters import Clusters
from tower.errors import AUTH_FAILURES, POLICY_REFUSALS, Forbidden, Unauthorized
from tower.kube.status import StatusError
from tower.metrics.families import counters as counters_of
from tower.metrics.families import gauges, histogram
from tower.metrics.histogram import Histogram
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.measurements import Finished
from tower.web.request_kind import (
    EXEC,
    LOGS,
    PORT_FORWARD,
    RAW,
    SHORT,
    WATCH,
    is_surely_short,
    request_kind,
)

REQUESTS = "tower_requests_total"
DURATION = "tower_request_duration_seconds"
FIRST_BYTE = "tower_first_byte_seconds"
INFLIGHT = "tower_requests_inflight"
AUTH = "tower_auth_failures_total"
POLICY = "tower_policy_refusals_total"

_REQUESTS_TEXT = (
    "Finished requests by whether Tower or the member made the answer; code_class none: the client "
    "disconnected before it; aborted: the member or Tower broke it off."
)
#: Values of the label ``verb``: classes of verbs; streams are requests of a kind other than short.
READ, WRITE, STREAM = "read", "write", "stream"

#: Number of current requests whose kinds are counted at once.
_PIECE = 100

_READS = frozenset((b"GET", b"HEAD", b"OPTIONS"))
_KINDS = (SHORT, WATCH, EXEC, PORT_FORWARD, LOGS, RAW)
_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx", "aborted")

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
    """

    __slots__ = ("durations", "finished", "first_bytes")

    def __init__(self) -> None:
        self.finished = dict.fromkeys(_ALWAYS, 0)
        self.durations = Histogram()
        self.first_bytes = Histogram()

    def add(self, requests: Sequence[Finished]) -> None:
        """Count *requests* of this cluster."""
        upgrades = any(each[3] for each in requests)
        if not upgrades and is_surely_short(b" ".join([each[2] for each in requests])):
            short = requests
        else:
            kinds = [request_kind(*each[1:4]) for each in requests]
            short = [each for each, kind in zip(requests, kinds, strict=True) if kind == SHORT]
            self._add_streams([each for each, kind in zip(requests, kinds, strict=True) if kind != SHORT])
        counts = Counter([(each[1], each[4], each[5]) for each in short])
        for (method, code, by_member), count in counts.items():
            key = READ if method in _READS else WRITE, code // 100, by_member
            self.finished[key] = self.finished.get(key, 0) + count
        self.durations.observe_all([each[8] - each[6] for each in short])
        self.first_bytes.observe_all([(each[7] or each[8]) - each[6] for each in short if each[4]])

    def _add_streams(self, requests: Sequence[Finished]) -> None:
        for key, count in Counter([(STREAM, each[4] // 100, each[5]) for each in requests]).items():
            self.finished[key] = self.finished.get(key, 0) + count
        self.first_bytes.observe_all([each[7] - each[6] for each in requests if each[7]])

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
    """The meter of all gateways, and the collector of its counters; see `tower.web.gateway.measurements`.

    A request for a cluster that does not exist counts like one for Tower's own API, whose ``cluster`` is
    empty.

    :ivar too_many: number of requests rejected because a cluster had too many in flight.
    """

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self.finished: list[Finished] = []
        self._gateways: WeakSet[Gateway] = WeakSet()
        self._counters = {"": RequestCounters()}
        self._auth_failures: dict[str, float] = dict.fromkeys(AUTH_FAILURES, 0)
        self._policy_refusals: dict[str, float] = dict.fromkeys(POLICY_REFUSALS, 0)
        self.too_many = 0

    def watch(self, gateway: Gateway) -> None:
        """See `RequestMeter.watch`."""
        self._gateways.add(gateway)

    def count(self) -> None:
        """See `RequestMeter.count`."""
        batch = self.finished.copy()
        self.finished.clear()
        by_cluster: dict[str, list[Finished]] = {}
        for each in batch:
            by_cluster.setdefault(each[0], []).append(each)
        for cluster, requests in by_cluster.items():
            (self._counters.get(cluster) or self._of(cluster)).add(requests)

    def refused(self, error: BaseException) -> None:
        """See `RequestMeter.refused`."""
        if isinstance(error, Unauthorized):
            self._auth_failures[error.kind if error.kind in self._auth_failures else "other"] += 1
        elif isinstance(error, Forbidden) or (isinstance(error, StatusError) and error.code == 403):
            self._policy_refusals[error.kind if error.kind in self._policy_refusals else "other"] += 1
        elif isinstance(error, StatusError) and error.code == 429:
            self.too_many += 1

    def _of(self, cluster: str) -> RequestCounters:
        """Return the counters of a cluster that has none yet."""
        if self._clusters.get(cluster) is None:
            return self._counters[""]
        self._forget_removed()
        counters = self._counters[cluster] = RequestCounters()
        return counters

    def _forget_removed(self) -> None:
        for name in list(self._counters):
            if name and self._clusters.get(name) is None:
                del self._counters[name]

    def _inflight(self, names: Sequence[str]) -> Iterator[Metric]:
        """Yield the numbers of current requests; before them, empty metrics while these are counted.

        The caller may let the reactor run at each: the kind of a watch takes some microseconds.
        """
        text = "Current requests."
        numbers: dict[str, dict[str, float]] = {}
        current = chain.from_iterable([gateway.current for gateway in self._gateways])
        while piece := list(islice(current, _PIECE)):
            for request in piece:
                kinds = numbers.get(request.cluster)
                if kinds is None:
                    kinds = numbers[request.cluster] = dict.fromkeys(_KINDS, 0)
                kinds[request_kind(request.method, request.target, request.fields.upgrade)] += 1
            yield Metric(INFLIGHT, text, "gauge")
        none = dict.fromkeys(_KINDS, 0.0)
        for name in names:
            yield gauges(INFLIGHT, text, "kind", numbers.get(name, none), cluster=name)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of each cluster, all clusters of one metric in succession."""
        self.count()
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
        yield from self._inflight(names)
        text = "Requests without a valid credential."
        yield counters_of(AUTH, text, "reason", self._auth_failures)
        text = "Requests of authenticated users that Tower itself denied."
        yield counters_of(POLICY, text, "reason", self._policy_refusals)
