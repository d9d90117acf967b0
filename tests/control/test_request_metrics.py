"""Tests of `tower.control.request_metrics`."""

from __future__ import annotations

from typing import Any, cast

from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.pages import page_of
from tower.control.request_metrics import RequestMetrics
from tower.errors import Forbidden, Unauthorized
from tower.kube.status import StatusError
from tower.metrics.page import registry_of
from tower.web.gateway.observer import Observation


@define(eq=False)
class _Seen:
    """The facts of an observation."""

    cluster: str = "alpha"
    kind: str = "short"
    verb_class: str = "read"
    code: int = 200
    by_member: bool = True
    began: float = 0.0
    answered_at: float = 0.0
    ended_at: float = 0.0
    error: Exception | None = None


class RequestMetricsTests(SynchronousTestCase):
    """Counters of requests."""

    def setUp(self) -> None:
        """Collect from one cluster."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.now = 1000.0
        self.metrics = RequestMetrics(self.bench.clusters, lambda: self.now)
        self.registry = registry_of(self.metrics)

    def value(self, name: str, cluster: str = "alpha", **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(name, {"cluster": cluster, **labels})

    def requests(self, cluster: str = "alpha", **labels: str) -> float | None:
        """Return the number of finished requests."""
        known = {"verb": "read", "code_class": "2xx", "source": "member", **labels}
        return self.value("tower_requests_total", cluster, **known)

    def begin(self, **facts: Any) -> Observation:
        """Begin a request."""
        seen = cast(Observation, _Seen(began=self.now, **facts))
        if seen.kind:
            self.metrics.begun(seen)
        return seen

    def end(self, seen: Observation, first: float = 0.01, rest: float = 0.02) -> None:
        """End a request whose answer began after *first* s and took *rest* s."""
        self.now += first
        if seen.code:
            seen.answered_at = self.now
        self.now += rest
        seen.ended_at = self.now
        self.metrics.ended(seen)

    def test_short(self) -> None:
        """A short request counts in all metrics."""
        seen = self.begin()
        self.assertEqual(self.value("tower_requests_inflight", kind="short"), 1)
        self.end(seen)
        self.assertEqual(self.value("tower_requests_inflight", kind="short"), 0)
        self.assertEqual(self.requests(), 1)
        self.assertEqual(self.value("tower_request_duration_seconds_count"), 1)
        self.assertAlmostEqual(self.value("tower_request_duration_seconds_sum") or 0, 0.03)
        self.assertAlmostEqual(self.value("tower_first_byte_seconds_sum") or 0, 0.01)
        self.assertEqual(self.value("tower_request_duration_seconds_bucket", le="0.02"), 0)
        self.assertEqual(self.value("tower_request_duration_seconds_bucket", le="0.1"), 1)

    def test_streams(self) -> None:
        """Watches and streams have no duration, but a first byte, and are in flight by kind."""
        for kind, code in (("watch", 200), ("exec", 101), ("portforward", 101), ("logs", 200), ("raw", 101)):
            seen = self.begin(kind=kind, verb_class="stream", code=code)
            self.assertEqual(self.value("tower_requests_inflight", kind=kind), 1)
            self.end(seen)
            self.assertEqual(self.value("tower_requests_inflight", kind=kind), 0)
        self.assertEqual(self.requests(verb="stream"), 2)
        self.assertEqual(self.requests(verb="stream", code_class="1xx"), 3)
        self.assertEqual(self.value("tower_request_duration_seconds_count"), 0)
        self.assertEqual(self.value("tower_first_byte_seconds_count"), 5)

    def test_tower(self) -> None:
        """The source of an answer is Tower or the member."""
        self.end(self.begin(code=503, by_member=False))
        self.assertEqual(self.requests(code_class="5xx", source="tower"), 1)
        self.assertEqual(self.requests(code_class="5xx"), 0)

    def test_disconnected(self) -> None:
        """A request whose client disconnected has no status and no first byte."""
        self.end(self.begin(code=0, by_member=False))
        self.assertEqual(self.requests(code_class="none", source="tower"), 1)
        self.assertEqual(self.value("tower_first_byte_seconds_count"), 0)

    def test_rejected(self) -> None:
        """A request that was rejected counts for its cluster; without an existing one, for Tower."""
        for cluster in ("alpha", "nonsense", ""):
            self.end(self.begin(cluster=cluster, kind="", code=403, by_member=False))
        self.assertEqual(self.requests(code_class="4xx", source="tower"), 1)
        self.assertEqual(self.requests("", code_class="4xx", source="tower"), 2)
        self.assertIsNone(self.requests("nonsense", code_class="4xx", source="tower"))

    def test_refusals(self) -> None:
        """Refusals count by their kind; errors of other kinds do not."""
        for error in (
            Unauthorized("expired", "c1 expired", "expired"),
            Unauthorized(),
            Forbidden("not yours", "other-cluster"),
            StatusError(403, "the agent does not allow it"),
            StatusError(429, "too many requests"),
            StatusError(503, "no agent"),
            ValueError("a bug"),
        ):
            self.end(self.begin(kind="", code=403, by_member=False, error=error))

        def refusals(name: str, reason: str) -> float | None:
            return self.registry.get_sample_value(name, {"reason": reason})

        self.assertEqual(refusals("tower_auth_failures_total", "expired"), 1)
        self.assertEqual(refusals("tower_auth_failures_total", "other"), 1)
        self.assertEqual(refusals("tower_auth_failures_total", "revoked"), 0)
        self.assertEqual(refusals("tower_policy_refusals_total", "other-cluster"), 1)
        self.assertEqual(refusals("tower_policy_refusals_total", "other"), 1)
        self.assertEqual(self.metrics.too_many, 1)

    def test_without_requests(self) -> None:
        """A cluster without requests has samples, all 0."""
        for name in ("tower_request_duration_seconds_count", "tower_first_byte_seconds_count"):
            self.assertEqual(self.value(name), 0)
        self.assertEqual(self.requests(), 0)
        self.assertEqual(self.requests(code_class="5xx", source="tower"), 0)
        self.assertEqual(self.value("tower_requests_inflight", kind="watch"), 0)

    def test_removed(self) -> None:
        """A removed cluster has no series, also while its last request ends, and is forgotten after it."""
        seen = self.begin()
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.assertNotIn(b"alpha", page_of(self.registry))
        self.end(seen)
        self.assertNotIn(b"alpha", page_of(self.registry))
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.assertEqual(self.requests(), 0)

    def test_series(self) -> None:
        """A cluster with every possible request has fewer than 70 series."""
        for verb in ("read", "write", "stream"):
            for code in (0, 101, 200, 302, 404, 500):
                for by_member in (True, False):
                    self.end(self.begin(verb_class=verb, code=code, by_member=by_member))
        samples = [sample for metric in self.registry.collect() for sample in metric.samples]
        self.assertLess(len([sample for sample in samples if sample.labels.get("cluster") == "alpha"]), 70)
