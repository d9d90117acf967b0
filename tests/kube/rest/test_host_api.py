"""Tests of `tower.kube.rest.host_api`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.rest.host_api import ResourceType, WatchEvent
from tower.kube.rest.well_known import CLUSTERS, NAMESPACES, SECRETS


class ResourceTypeTests(SynchronousTestCase):
    """Paths and names of types."""

    def test_paths(self) -> None:
        """Paths are those of the API server, for the core group and others, with and without namespace."""
        self.assertEqual(SECRETS.path(None), "/api/v1/secrets")
        self.assertEqual(SECRETS.path("a b"), "/api/v1/namespaces/a%20b/secrets")
        self.assertEqual(SECRETS.path("x", "../y"), "/api/v1/namespaces/x/secrets/..%2Fy")
        self.assertEqual(NAMESPACES.path("ignored", "x"), "/api/v1/namespaces/x")
        self.assertEqual(
            CLUSTERS.path(None, "alpha", "status"),
            "/apis/cluster.kubesphere.io/v1alpha1/clusters/alpha/status",
        )

    def test_names(self) -> None:
        """The name has the group, as in names of CRDs."""
        self.assertEqual(CLUSTERS.name, "clusters.cluster.kubesphere.io")
        self.assertEqual((SECRETS.name, SECRETS.api_version), ("secrets", "v1"))
        self.assertEqual(CLUSTERS.api_version, "cluster.kubesphere.io/v1alpha1")
        self.assertEqual(ResourceType("g", "v2", "things", "Thing").api_version, "g/v2")

    def test_event_version(self) -> None:
        """An event has the version of its object."""
        event = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
        self.assertEqual(event.resource_version, "7")
