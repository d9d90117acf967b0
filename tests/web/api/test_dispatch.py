"""Tests for `tower.web.api.dispatch`."""

from __future__ import annotations

from tests.fakes.api import BASE, ApiTestCase, decoded
from tower.kube.status import StatusError
from tower.web.outcome import Response


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
