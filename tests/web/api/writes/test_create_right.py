"""Tests of `tower.web.api.writes.create_right`, through Tower's own API."""

from __future__ import annotations

from typing import Any

from tests.fakes.api import ApiTestCase, decoded

APPLY = "application/apply-patch+yaml"
TOWER = "cluster.kubesphere.io"
RBAC = "rbac.authorization.k8s.io"
POLICY = {"subjects": [{"kind": "User", "name": "jane"}], "clusters": {"names": ["alpha"]}}
OBJECTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (TOWER, "accesspolicies", {"kind": "AccessPolicy", "spec": POLICY}),
    (TOWER, "clusters", {"kind": "Cluster", "spec": {}}),
    (RBAC, "clusterroles", {"kind": "ClusterRole"}),
    (RBAC, "namespaces/a/roles", {"kind": "Role"}),
)
ADMIN = ("root", ("tower:admins",))


class CreateRightTests(ApiTestCase):
    """Server-side apply of objects that do not exist."""

    def allow(self, *verbs: str) -> None:
        """Give jane the *verbs* for all objects."""
        self.user = ADMIN
        rules = [{"verbs": list(verbs), "apiGroups": [TOWER, RBAC], "resources": ["*"]}]
        role = {"metadata": {"name": "writer"}, "rules": rules}
        self.ask("PUT" if self.is_bound else "POST", self.path(RBAC, "clusterroles", self.is_bound), role)
        if not self.is_bound:
            bound = {
                "metadata": {"name": "writers", "annotations": {"tower.kubesphere.io/clusters": "@tower"}},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "writer"},
                "subjects": [{"kind": "User", "name": "jane"}],
            }
            self.ask("POST", self.path(RBAC, "clusterrolebindings"), bound)
        self.is_bound = True
        self.user = ("jane", ())

    is_bound = False

    def path(self, group: str, plural: str, named: bool = False, name: str = "writer") -> str:
        """Return a path of the API."""
        version = "v1alpha1" if group == TOWER else "v1"
        return f"/apis/{group}/{version}/{plural}" + (f"/{name}" if named else "")

    def test_apply(self) -> None:
        """The right to patch is enough for an object that exists, and a new one also needs that to create."""
        for group, plural, value in OBJECTS:
            path = self.path(group, plural, named=True, name="one")
            config = {**value, "metadata": {"name": "one"}}
            more = {"content": APPLY, "fieldManager": "kubectl"}
            self.allow("patch")
            for dry_run in ({}, {"dryRun": "All"}):
                error = self.refused(403, "PATCH", path, config, **more, **dry_run)
                resource = plural.rpartition("/")[2]
                self.assertIn(
                    f'{resource}.{group} "one" is forbidden: User "jane" cannot create resource "{resource}"',
                    error.message,
                )
            self.allow("patch", "create")
            self.assertEqual(decoded(self.ask("PATCH", path, config, **more))["metadata"]["name"], "one")
            self.allow("patch")
            config["metadata"]["labels"] = {"a": "b"}
            changed = decoded(self.ask("PATCH", path, config, **more))
            self.assertEqual(changed["metadata"]["labels"], {"a": "b"})
