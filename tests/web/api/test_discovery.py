"""Tests for `tower.web.api.discovery`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower import BUILD
from tower.web.api import discovery

NEWEST = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
MIDDLE = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"


class DiscoveryTests(SynchronousTestCase):
    """The documents that kubectl reads first."""

    def test_plain(self) -> None:
        """A client that requests plain JSON gets lists of groups."""
        media, body = discovery.api_groups("application/json, */*")
        self.assertEqual(media, "application/json")
        self.assertEqual(body["kind"], "APIGroupList")
        self.assertEqual(
            [group["name"] for group in body["groups"]],
            [
                "cluster.kubesphere.io",
                "events.k8s.io",
                "authentication.k8s.io",
                "authorization.k8s.io",
                "rbac.authorization.k8s.io",
            ],
        )
        media, body = discovery.api_versions("")
        self.assertEqual((media, body["kind"], body["versions"]), ("application/json", "APIVersions", ["v1"]))

    def test_aggregated(self) -> None:
        """Newer clients get everything in one answer, in their version and with its media type."""
        for accept, version in ((NEWEST, "v2"), (MIDDLE, "v2beta1")):
            media, body = discovery.api_groups(accept)
            self.assertIn(f"v={version};", media)
            self.assertEqual(body["apiVersion"], f"apidiscovery.k8s.io/{version}")
            group = body["items"][0]
            (entry,) = group["versions"]
            self.assertEqual(
                [r["resource"] for r in entry["resources"]],
                [
                    "clusters",
                    "agents",
                    "jointokens",
                    "kubeconfigs",
                    "credentials",
                    "nodes",
                    "hostkeys",
                    "rotations",
                    "accesspolicies",
                    "loginsessions",
                    "accessreviews",
                ],
            )
            self.assertEqual(
                [s["subresource"] for s in entry["resources"][0]["subresources"]],
                ["status", "agents", "jointokens", "kubeconfigs", "trustedcallers", "nodes", "hostkeys"],
            )
            media, body = discovery.api_versions(accept)
            (core,) = body["items"]
            (events,) = core["versions"][0]["resources"]
            self.assertEqual((events["resource"], events["scope"]), ("events", "Namespaced"))

    def test_resources(self) -> None:
        """Every resource is cluster-scoped and names its verbs."""
        body = discovery.api_resources()
        self.assertEqual(body["groupVersion"], "cluster.kubesphere.io/v1alpha1")
        verbs = {resource["name"]: resource["verbs"] for resource in body["resources"]}
        self.assertEqual(verbs["clusters"], ["create", "delete", "get", "list", "patch", "update", "watch"])
        self.assertEqual(verbs["clusters/jointokens"], ["create"])
        self.assertFalse(any(resource["namespaced"] for resource in body["resources"]))

    def test_build(self) -> None:
        """The compiler in the version names the build of the data path."""
        self.assertEqual(discovery.version_info()["compiler"], f"CPython ({BUILD})")

    def test_version_is_semantic(self) -> None:
        """Python's release numbers become semantic versions, which clients require."""
        self.assertEqual(discovery.git_version("1.2.3"), "v1.2.3")
        self.assertEqual(discovery.git_version("1.0.0.dev0"), "v1.0.0-dev.0")
        self.assertEqual(discovery.git_version("2.0.0rc1+local"), "v2.0.0-rc.1")
        self.assertRaises(ValueError, discovery.git_version, "yesterday")
        info = discovery.version_info()
        self.assertTrue(info["gitVersion"].startswith(f"v{info['major']}.{info['minor']}."))
