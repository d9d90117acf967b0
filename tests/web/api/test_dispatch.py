"""Tests for `tower.web.api.dispatch`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.api import BASE, ApiTestCase, decoded
from tests.fakes.requests import FakeFields, FakeRequest
from tower.kube.status import StatusError
from tower.web.api.dispatch import Call, call_of
from tower.web.outcome import Response


def parsed(path: bytes, query: bytes = b"", **lines: bytes) -> Call:
    """Return a parsed request."""
    fields = FakeFields(lines={name.replace("_", "-").encode(): value for name, value in lines.items()})
    request: Any = FakeRequest(path + b"?" + query, fields=fields)
    return call_of(request)


class CallTests(SynchronousTestCase):
    """Parsing of requests."""

    def test_parts(self) -> None:
        """Path, query and headers."""
        call = parsed(
            b"/apis/g/v1/clusters/",
            b"watch=1&labelSelector=a%3Db&watch=0&empty=",
            accept=b"text/plain",
            content_type=b"application/json",
        )
        self.assertEqual(call.segments, ("apis", "g", "v1", "clusters"))
        self.assertEqual(call.query, {"watch": "1", "labelSelector": "a=b", "empty": ""})
        self.assertEqual((call.accept, call.content_type), ("text/plain", "application/json"))

    def test_flags(self) -> None:
        """A flag without a value is set; false and 0 are not."""
        for value, expected in (("", True), ("true", True), ("1", True), ("false", False), ("0", False)):
            self.assertEqual(Call("GET", (), {"watch": value}).flag("watch"), expected)
        self.assertFalse(Call("GET", ()).flag("watch"))

    def test_bad_queries(self) -> None:
        """A query that is not UTF-8, or too long, is rejected."""
        for query in (b"a=%ff", b"&".join(b"a%d=1" % n for n in range(65))):
            with self.assertRaises(StatusError) as caught:
                parsed(b"/apis", query)
            self.assertEqual(caught.exception.code, 400)

    def test_deep_yaml(self) -> None:
        """A body that is nested too deeply is rejected."""
        for content, raw in (("application/json", b"[" * 100_000), ("application/yaml", b"[" * 2_000)):
            call = Call("POST", (), content_type=content, body=lambda raw=raw: succeed(raw))  # type: ignore[misc]
            failure = self.failureResultOf(Deferred.fromCoroutine(call.read()), StatusError)
            self.assertEqual(failure.value.code, 400)

    def test_long_yaml(self) -> None:
        """The limit of YAML bodies is lower, because parsing is slow."""
        raw = b"a: " + b"x" * (64 << 10)
        call = Call("POST", (), content_type="application/yaml", body=lambda: succeed(raw))
        failure = self.failureResultOf(Deferred.fromCoroutine(call.read()), StatusError)
        self.assertEqual(failure.value.code, 413)


class DocumentTests(ApiTestCase):
    """Discovery documents."""

    def test_documents(self) -> None:
        """Each document is on the path where clients expect it."""
        for path, kind in (
            ("/api", "APIVersions"),
            ("/apis", "APIGroupList"),
            ("/apis/cluster.kubesphere.io", "APIGroup"),
            (BASE, "APIResourceList"),
        ):
            self.assertEqual(self.get(path)["kind"], kind)
        index = self.get("/openapi/v3")["paths"]
        for entry in index.values():
            self.assertIn("components", self.get(entry["serverRelativeURL"].partition("?")[0]))
        self.assertEqual(self.get("/openapi/v2")["swagger"], "2.0")

    def test_aggregated(self) -> None:
        """The aggregated form has its own media type, and a Vary header for caches."""
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        outcome = self.ask("GET", "/apis", accept=accept)
        assert isinstance(outcome, Response)
        self.assertEqual(dict(outcome.headers), {b"Content-Type": accept.encode(), b"Vary": b"Accept"})
        self.assertEqual(decoded(outcome)["kind"], "APIGroupDiscoveryList")

    def test_every_verb_that_is_listed(self) -> None:
        """Discovery lists no resource that is answered with 404."""
        self.add("alpha")
        for resource in self.get(BASE)["resources"]:
            name = resource["name"].replace("clusters/", "clusters/alpha/")
            method = "POST" if resource["verbs"] == ["create"] else "GET"
            try:
                self.ask(method, f"{BASE}/{name}", {})
            except StatusError as e:
                self.assertEqual(e.code, 422, name)

    def test_nothing_there(self) -> None:
        """Other paths are not found, other methods not allowed."""
        self.refused(404, "GET", "/apis/apps/v1")
        self.refused(404, "GET", "/api/v2")
        self.refused(404, "GET", "/api/v1/pods")
        self.refused(404, "GET", "/apis/events.k8s.io/v2")
        self.refused(404, "GET", "/openapi/v3/apis/apps/v1")
        self.refused(405, "POST", "/apis", {})
        self.refused(404, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {})
