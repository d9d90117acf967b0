"""Tests of `tower.clusters.policies.access_levels`."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.access_levels import (
    ALL_LEVELS,
    EDIT,
    FULL,
    NO_EXEC,
    READ_ONLY,
    levels_of,
    levels_of_target,
)

_POD = "/api/v1/namespaces/default/pods/web"
_CONNECT = FULL | EDIT
_CHANGE = FULL | EDIT | NO_EXEC
_FOREIGN = FULL | NO_EXEC


class LevelsTests(SynchronousTestCase):
    """The levels that permit a request."""

    def check(self, expected: int, *requests: str, upgrade: bool = False) -> None:
        """Check requests, such as ``GET /api``."""
        for each in requests:
            method, _, target = each.encode().partition(b" ")
            self.assertEqual(levels_of(method, target, upgrade=upgrade), expected, each)

    def test_reads(self) -> None:
        """All levels permit reads, discovery, and reviews of the user's own rights."""
        self.check(
            ALL_LEVELS,
            "GET /api/v1/namespaces/default/pods?limit=500",
            "GET /api/v1/pods?watch=1",
            "GET /api/v1/watch/pods",
            "HEAD /api/v1/nodes/n1",
            f"GET {_POD}/log?follow=true",
            "GET /apis/apps/v1/deployments",
            "GET /version",
            "GET /api",
            "GET /openapi/v3",
            "OPTIONS /api/v1/pods",
            "GET ",
            "GET ?x=1",
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
        )
        self.check(ALL_LEVELS, "GET /api/v1/pods?watch=1", f"GET {_POD}/log", upgrade=True)

    def test_connections(self) -> None:
        """Connections into pods and services need full or edit, with any method; those to nodes need full."""
        for subresource in ("exec", "attach", "portforward", "proxy", "proxy/metrics", "exec?command=ls"):
            self.check(_CONNECT, f"GET {_POD}/{subresource}", f"POST {_POD}/{subresource}")
        self.check(_CONNECT, "GET /api/v1/namespaces/default/services/web/proxy/")
        self.check(
            FULL,
            "GET /api/v1/nodes/n1/proxy/metrics",
            "GET /api/v1/proxy/namespaces/default/services/web",
            "POST /api/v1/proxy/nodes/n1",
        )

    def test_upgrades(self) -> None:
        """Other upgrades are connections, too, such as the consoles of virtual machines."""
        console = "/apis/subresources.kubevirt.io/v1/namespaces/d/virtualmachineinstances/vm/console"
        self.check(_CONNECT, f"GET {console}", f"GET {_POD}", upgrade=True)
        self.check(FULL, "GET /healthz", "GET /api/v1/nodes", "GET /", upgrade=True)

    def test_changes(self) -> None:
        """The level edit changes objects in namespaces; debug containers are programs in pods."""
        self.check(
            _CHANGE,
            "POST /api/v1/namespaces/default/pods",
            f"DELETE {_POD}",
            "PATCH /apis/apps/v1/namespaces/default/deployments/web/scale",
            "DELETE /api/v1/namespaces/default/configmaps",
            f"POST {_POD}/eviction",
        )
        self.check(_CONNECT, f"PATCH {_POD}/ephemeralcontainers")
        self.check(
            _FOREIGN,
            "POST /api/v1/namespaces",
            "DELETE /api/v1/namespaces/default",
            "PUT /api/v1/namespaces/default/finalize",
            "PATCH /api/v1/nodes/n1",
            "POST /apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            "POST /apis/rbac.authorization.k8s.io/v1/clusterroles",
            "POST /api/v1/namespaces/default/resourcequotas",
            "POST /api/v1/namespaces/default/serviceaccounts/ci/token",
            "POST /api/v1/namespaces/default/bindings",
            "POST /apis/authentication.k8s.io/v1/tokenreviews",
            "POST /logs",
        )

    def test_ambiguous_paths(self) -> None:
        """A path that two programs might read differently needs full."""
        for path in (
            "/api/v1/namespaces/default/pods/web%2Fexec",
            "/api/v1/namespaces/default/pods/x/../../secrets",
            "/api/v1//pods",
            "/api/v1/namespaces/%2e%2e/pods",
            "/api/v1/namespaces/default/pods/web%252fexec",
            "/api/v1/pods\\x",
            "/api/v1/namespaces/default/pods/web/exec#x",
            "/api/v1/namespaces/default/pods/web/exec%23",
            "/api/v1/pods/.",
        ):
            self.check(FULL, f"GET {path}")

    def test_targets(self) -> None:
        """Other targets permit reads with all levels; kubelets permit everything else with full only."""
        for name in ("grafana", "kubesphere"):
            self.assertEqual(levels_of_target(name, b"GET", b"/d/x?y=1", upgrade=False), ALL_LEVELS)
            self.assertEqual(levels_of_target(name, b"POST", b"/d", upgrade=False), _CHANGE)
            self.assertEqual(levels_of_target(name, b"GET", b"/live", upgrade=True), _CHANGE)
        for path in (b"/metrics", b"/metrics/cadvisor", b"/pods", b"/containerLogs/ns/pod/c?follow=1"):
            self.assertEqual(levels_of_target("kubelet", b"GET", path, upgrade=False), ALL_LEVELS)
        for method, path, upgrade in (
            (b"POST", b"/run/ns/pod/c", False),
            (b"GET", b"/exec/ns/pod/c", True),
            (b"GET", b"/exec/ns/pod/c", False),
            (b"GET", b"/metrics/../run/x", False),
            (b"GET", b"/pods", True),
            (b"GET", b"", False),
        ):
            self.assertEqual(levels_of_target("kubelet", method, path, upgrade=upgrade), FULL, path)

    @given(
        method=st.sampled_from([b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"BREW"]),
        path=st.lists(
            st.sampled_from(
                ["api", "apis", "v1", "namespaces", "pods", "exec", "watch", "proxy", "x", "", "%2f", "nodes"]
            ),
            max_size=9,
        ),
        upgrade=st.booleans(),
    )
    @example(method=b"GET", path=["api", "v1", "namespaces", "x", "pods", "x", "exec"], upgrade=True)
    def test_any(self, method: bytes, path: list[str], upgrade: bool) -> None:
        """Full permits everything; read-only never a connection, and no other method than those of reads."""
        target = "/".join(["", *path]).encode()
        levels = levels_of(method, target, upgrade=upgrade)
        self.assertTrue(levels & FULL)
        if levels & READ_ONLY:
            self.assertIn(method, (b"GET", b"HEAD"))
            self.assertFalse(upgrade and "watch" not in path)
            self.assertEqual(levels, ALL_LEVELS)
        match path:
            case ["api", _, "namespaces", _, _, _, "exec" | "proxy", *_] | [
                "apis",
                _,
                _,
                "namespaces",
                _,
                _,
                _,
                "exec" | "proxy",
                *_,
            ]:
                self.assertFalse(levels & NO_EXEC)
