"""Tests of `tower.control.metrics.request_metrics`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.gateway import Kit, get, ok
from tests.fakes.pages import page_of
from tower.control.metrics.request_metrics import RequestMetrics
from tower.errors import AUTH_FAILURES, Forbidden, Unauthorized
from tower.kube.status import StatusError
from tower.metrics.page import registry_of
from tower.net.tls.connection import CertificateRejected, TLSFailed
from tower.web.gateway.measurements import ABORTED, BATCH

POD = b"/clusters/alpha/api/v1/namespaces/default/pods/web"


class RequestMetricsTests(SynchronousTestCase):
    """Counters of requests."""

    def setUp(self) -> None:
        """Collect from one cluster."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.metrics = RequestMetrics(self.bench.clusters)
        self.registry = registry_of(self.metrics)

    def value(self, name: str, cluster: str = "alpha", **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(name, {"cluster": cluster, **labels})

    def requests(self, cluster: str = "alpha", **labels: str) -> float | None:
        """Return the number of finished requests."""
        known = {"verb": "read", "code_class": "2xx", "source": "member", **labels}
        return self.value("tower_requests_total", cluster, **known)

    def finish(
        self,
        code: int = 200,
        *,
        cluster: str = "alpha",
        method: bytes = b"GET",
        target: bytes = POD,
        upgrade: bytes = b"",
        by_member: bool = True,
        answered_at: float = 1000.01,
    ) -> None:
        """Finish a request that began at 1000 s and took 30 ms."""
        facts = (cluster, method, target, upgrade, code, by_member, 1000.0, answered_at, 1000.03)
        self.metrics.finished.append(facts)

    def test_short(self) -> None:
        """A short request counts in all metrics."""
        self.finish()
        self.finish(method=b"PATCH", answered_at=0.0)  # sent whole
        self.assertEqual(self.requests(), 1)
        self.assertEqual(self.requests(verb="write"), 1)
        self.assertEqual(self.value("tower_request_duration_seconds_count"), 2)
        self.assertAlmostEqual(self.value("tower_request_duration_seconds_sum") or 0, 0.06)
        self.assertAlmostEqual(self.value("tower_first_byte_seconds_sum") or 0, 0.04)
        self.assertEqual(self.value("tower_request_duration_seconds_bucket", le="0.02"), 0)
        self.assertEqual(self.value("tower_request_duration_seconds_bucket", le="0.1"), 2)

    def test_streams(self) -> None:
        """Watches and streams have no duration, but a first byte."""
        for target, upgrade, code in (
            (b"/api/v1/pods?watch=true", b"", 200),
            (POD + b"/log?follow=true", b"", 200),
            (POD + b"/exec", b"SPDY/3.1", 101),
            (b"/clusters/alpha/targets/db", b"tower-stream", 101),
        ):
            self.finish(code, target=target, upgrade=upgrade)
        self.finish(answered_at=0.0)
        self.assertEqual(self.requests(verb="stream"), 2)
        self.assertEqual(self.requests(verb="stream", code_class="1xx"), 2)
        self.assertEqual(self.requests(), 1)
        self.assertEqual(self.value("tower_request_duration_seconds_count"), 1)
        self.assertEqual(self.value("tower_first_byte_seconds_count"), 5)

    def test_inflight(self) -> None:
        """Current requests are counted by kind at each scrape, with their gateways."""
        kit = Kit()
        self.metrics.watch(kit.gateway)
        self.assertEqual(self.value("tower_requests_inflight", "", kind="short"), 0)
        kit.user.receiver.received(memoryview(get(b"/clusters/alpha/api/v1/pods")))
        other = kit.connect()
        other.receiver.received(memoryview(get(b"/clusters/alpha/api/v1/pods?watch=true")))
        for request in kit.requests:
            request.cluster = "alpha"
        self.assertEqual(self.value("tower_requests_inflight", kind="short"), 1)
        self.assertEqual(self.value("tower_requests_inflight", kind="watch"), 1)
        other.lose()
        self.assertEqual(self.value("tower_requests_inflight", kind="watch"), 0)

    def test_tower(self) -> None:
        """The source of an answer is Tower or the member."""
        self.finish(503, by_member=False)
        self.assertEqual(self.requests(code_class="5xx", source="tower"), 1)
        self.assertEqual(self.requests(code_class="5xx"), 0)

    def test_disconnected(self) -> None:
        """A request whose client disconnected has no status and no first byte."""
        self.finish(0, by_member=False, answered_at=0.0)
        self.assertEqual(self.requests(code_class="none", source="tower"), 1)
        self.assertEqual(self.value("tower_first_byte_seconds_count"), 0)

    def test_aborted(self) -> None:
        """An answer that the member or Tower broke off is not a success."""
        self.finish(ABORTED)
        self.assertEqual(self.requests(code_class="aborted"), 1)
        self.assertEqual(self.requests(), 0)

    def test_rejected(self) -> None:
        """A request that was rejected counts for its cluster; without an existing one, for Tower."""
        for cluster in ("alpha", "nonsense", ""):
            self.finish(403, cluster=cluster, by_member=False)
        self.assertEqual(self.requests(code_class="4xx", source="tower"), 1)
        self.assertEqual(self.requests("", code_class="4xx", source="tower"), 2)
        self.assertIsNone(self.requests("nonsense", code_class="4xx", source="tower"))

    def test_refusals(self) -> None:
        """Refusals count by their kind; errors of other kinds do not."""
        for error in (
            Unauthorized("expired", "c1 expired", "expired"),
            Unauthorized("strange", kind="strange"),
            Forbidden("not yours", "other-cluster"),
            StatusError(403, "the agent does not allow it"),
            StatusError(403, "no role", kind="authorization-mode"),
            StatusError(429, "too many requests"),
            StatusError(503, "no agent"),
            ValueError("a bug"),
        ):
            self.metrics.refused(error)

        def refusals(name: str, reason: str) -> float | None:
            return self.registry.get_sample_value(name, {"reason": reason})

        self.assertEqual(refusals("tower_auth_failures_total", "expired"), 1)
        self.assertEqual(refusals("tower_auth_failures_total", "other"), 1)
        self.assertEqual(refusals("tower_auth_failures_total", "revoked"), 0)
        self.assertEqual(refusals("tower_policy_refusals_total", "other-cluster"), 1)
        self.assertEqual(refusals("tower_policy_refusals_total", "authorization-mode"), 1)
        self.assertEqual(refusals("tower_policy_refusals_total", "other"), 1)
        self.assertEqual(self.metrics.too_many, 1)

    def test_rejected_certificates(self) -> None:
        """Client certificates that TLS rejects count as failed authentications, other failures do not."""
        kit = Kit(meter=self.metrics)
        for error in (CertificateRejected("certificate verify failed: …"), TLSFailed("http request")):
            kit.connect().lose(error)
        values = dict.fromkeys(AUTH_FAILURES, 0) | {"rejected-certificate": 1}
        for reason, value in values.items():
            found = self.registry.get_sample_value("tower_auth_failures_total", {"reason": reason})
            self.assertEqual(found, value, reason)

    def test_without_requests(self) -> None:
        """A cluster without requests has samples, all 0."""
        for name in ("tower_request_duration_seconds_count", "tower_first_byte_seconds_count"):
            self.assertEqual(self.value(name), 0)
        self.assertEqual(self.requests(), 0)
        self.assertEqual(self.requests(code_class="5xx", source="tower"), 0)
        self.assertEqual(self.value("tower_requests_inflight", kind="watch"), 0)

    def test_removed(self) -> None:
        """A removed cluster has no series, and is forgotten."""
        self.finish()
        self.assertEqual(self.requests(), 1)
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.finish()
        self.assertNotIn(b"alpha", page_of(self.registry))
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.assertEqual(self.requests(), 0)

    def test_long_targets(self) -> None:
        """A long target is not kept, and counts as what it is."""
        kit = Kit(meter=self.metrics)
        for query, verb in ((b"", "read"), (b"&watch=1", "stream")):
            kit.user.receiver.received(
                memoryview(get(b"/clusters/alpha/api/v1/pods?x=" + b"y" * 5000 + query))
            )
            kit.pipe.deliver(ok())
            ((_, _, target, *_),) = self.metrics.finished
            self.assertLess(len(target), 100)
            self.assertEqual(self.requests("", verb=verb), 1)

    def test_batches(self) -> None:
        """A gateway has each request counted once, in batches, however it ends."""
        kit = Kit(meter=self.metrics)
        for number in range(BATCH + 10):
            kit.user.receiver.received(memoryview(get(b"/clusters/alpha/api")))
            kit.pipe.deliver(ok(b"x" * (number % 3)))
        self.assertEqual(len(self.metrics.finished), 10)
        kit.user.receiver.received(memoryview(get(b"/clusters/alpha/api")))
        kit.user.lose()
        kit.connect().receiver.received(memoryview(get(b"/nowhere")))
        self.assertEqual(self.requests(""), BATCH + 10)
        self.assertEqual(self.requests("", code_class="none", source="tower"), 1)
        self.assertEqual(self.value("tower_request_duration_seconds_count", ""), BATCH + 12)
        self.assertEqual(self.metrics.finished, [])

    def test_series(self) -> None:
        """A cluster with every possible request has fewer than 70 series."""
        for method, target in ((b"GET", POD), (b"POST", POD), (b"GET", POD + b"/log")):
            for code in (0, 101, 200, 302, 404, 500):
                for by_member in (True, False):
                    self.finish(code, method=method, target=target, by_member=by_member)
        samples = [sample for metric in self.registry.collect() for sample in metric.samples]
        self.assertLess(len([sample for sample in samples if sample.labels.get("cluster") == "alpha"]), 70)
