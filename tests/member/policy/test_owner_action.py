"""Tests of `tower.member.policy.owner_action`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.access_levels import ALL_LEVELS, levels_of
from tower.member.policy.owner_action import action_of, described

PODS = b"/api/v1/namespaces/dev/pods"


class OwnerActionTests(SynchronousTestCase):
    def test_namespaces(self) -> None:
        """A request has the namespace of its objects; changes of a namespace itself have none."""
        for method, target, namespace in (
            (b"GET", PODS, "dev"),
            (b"POST", PODS + b"/shell/exec?command=id", "dev"),
            (b"DELETE", PODS + b"?labelSelector=a", "dev"),
            (b"GET", b"/api/v1/n%61mespaces/dev/pods", "dev"),
            (b"GET", b"/apis/apps/v1/namespaces/dev/deployments/web/scale", "dev"),
            (b"GET", b"/api/v1/namespaces/dev", "dev"),
            (b"DELETE", b"/api/v1/namespaces/dev", ""),
            (b"PUT", b"/api/v1/namespaces/dev/finalize", ""),
            (b"GET", b"/api/v1/pods", ""),
            (b"GET", b"/api/v1/namespaces", ""),
            (b"GET", b"/api/v1/nodes/dev/proxy/", ""),
            (b"GET", b"/api/v1/proxy/namespaces/dev/pods/shell", ""),
        ):
            action = action_of(method, target, upgrade=False)
            self.assertEqual(action.namespace, namespace, target)
            self.assertFalse(action.is_general, target)

    def test_ambiguous_paths(self) -> None:
        """A path that servers might read differently has no namespace."""
        for target in (
            b"/api/v1//namespaces/dev/pods",
            b"/api/v1/namespaces/dev%2f..%2fother/pods",
            b"/api/v1/namespaces/dev/services/web/proxy/a%2Fb",
            b"/api/v1/namespaces/dev\\pods",
        ):
            self.assertEqual(action_of(b"GET", target, upgrade=False).namespace, "", target)

    def test_general(self) -> None:
        """Discovery, health and reviews of the user's own rights concern no namespace."""
        review = b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for method, target, is_general in (
            (b"GET", b"/api", True),
            (b"GET", b"/apis/apps/v1?timeout=32s", True),
            (b"GET", b"/openapi/v3/apis/apps/v1", True),
            (b"GET", b"/version", True),
            (b"GET", b"/readyz?verbose", True),
            (b"POST", review, True),
            (b"POST", b"/api/v1/namespaces", False),
            (b"POST", b"/version", False),
            (b"GET", b"/metrics", False),
            (b"GET", b"/logs/kubelet.log", False),
        ):
            self.assertEqual(action_of(method, target, upgrade=False).is_general, is_general, target)
        self.assertFalse(action_of(b"GET", b"/version", upgrade=True).is_general)

    def test_reads(self) -> None:
        """Upgrades and changes are not reads."""
        self.assertTrue(action_of(b"GET", PODS + b"?watch=1", upgrade=False).is_read)
        self.assertFalse(action_of(b"GET", PODS + b"/shell/exec", upgrade=True).is_read)
        self.assertFalse(action_of(b"PATCH", PODS + b"/shell", upgrade=False).is_read)

    def test_described(self) -> None:
        """The text of an error has verb, object and namespace, and a limited length."""
        self.assertEqual(described(b"POST", PODS + b"/a/exec"), 'create pods/exec in namespace "dev"')
        self.assertEqual(described(b"GET", b"/apis/apps/v1/deployments"), "list deployments.apps")
        self.assertEqual(described(b"GET", b"/metrics"), "GET /metrics")
        self.assertLessEqual(len(described(b"GET", b"/" + b"x" * 1000)), 100)

    @given(
        st.sampled_from([b"GET", b"POST", b"DELETE", b"OPTIONS", b"PATCH", b"FOO"]),
        st.lists(
            st.sampled_from([b"api", b"apis", b"v1", b"namespaces", b"dev", b"pods", b"exec", b"", b"%2f"])
        ),
        st.booleans(),
    )
    def test_levels(self, method: bytes, parts: list[bytes], upgrade: bool) -> None:
        """Levels are those of access policies, and a general request is permitted by all of them."""
        target = b"/" + b"/".join(parts)
        action = action_of(method, target, upgrade=upgrade)
        self.assertEqual(action.levels, levels_of(method, target, upgrade=upgrade))
        self.assertFalse(action.is_general and (action.namespace or action.levels != ALL_LEVELS))
