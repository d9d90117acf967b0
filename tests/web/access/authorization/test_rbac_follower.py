"""Tests of `tower.web.access.authorization.rbac_follower`."""

from __future__ import annotations

from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.rest.host_api import WatchEvent
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import attributes_of
from tower.web.access.authorization.rbac_follower import RbacFollower

REQUEST = attributes_of(UserInfo("jane"), b"GET", b"/api/v1/namespaces/a/pods", "alpha")


def role() -> dict[str, Any]:
    """Return a ClusterRole."""
    rule = {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}
    return {"metadata": {"name": "r"}, "rules": [rule]}


def binding(namespace: str = "", version: str = "1") -> dict[str, Any]:
    """Return a binding of jane."""
    return {
        "metadata": {"name": "b", "namespace": namespace, "resourceVersion": version},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }


class RbacFollowerTests(SynchronousTestCase):
    """Objects and their changes."""

    def setUp(self) -> None:
        """Create the follower."""
        self.changes = 0
        self.follower = RbacFollower(self.changed)

    def changed(self) -> None:
        """Count a change."""
        self.changes += 1

    def sync(self, *bindings: dict[str, Any]) -> None:
        """Deliver the first lists."""
        roles, namespaced = self.follower.roles
        roles.replaced([role()], "1")
        namespaced.replaced([], "1")
        everywhere, local = self.follower.bindings
        everywhere.replaced([], "1")
        local.replaced(list(bindings), "1")

    def test_unknown(self) -> None:
        """Before all lists are complete, every decision is an error that is not kept."""
        self.follower.roles[0].replaced([role()], "1")
        found = self.follower.authorize(REQUEST)
        self.assertIn("are not known yet", found.error)
        self.assertFalse(found.may_be_kept)

    def test_lists(self) -> None:
        """The first lists count at once."""
        self.sync(binding("a"))
        self.assertTrue(self.follower.authorize(REQUEST).is_allowed)
        self.assertEqual(self.changes, 1)

    def test_changes(self) -> None:
        """Changes count at once; one that changes no rule does not count."""
        self.sync()
        local = self.follower.bindings[1]
        for kind, value, is_allowed, changes in (
            ("ADDED", binding("a"), True, 2),
            ("MODIFIED", binding("a", "2"), True, 2),
            ("DELETED", binding("a"), False, 3),
            ("DELETED", binding("a"), False, 3),
        ):
            local.changed(WatchEvent(kind, value))  # type: ignore[arg-type]
            self.assertEqual(
                (self.follower.authorize(REQUEST).is_allowed, self.changes), (is_allowed, changes)
            )

    def test_wrong_clusters(self) -> None:
        """A binding whose annotation has entries that name no cluster is logged, once for each change."""
        wrong, right = binding("a"), binding("a", "3")
        wrong["metadata"]["annotations"] = {"tower.kubesphere.io/clusters": "alpha,Bad Name,"}
        right["metadata"]["annotations"] = {"tower.kubesphere.io/clusters": "alpha"}
        self.sync()
        with capturedLogs() as logged:
            for value in (wrong, wrong, right):
                self.follower.bindings[1].changed(WatchEvent("MODIFIED", value))
                self.assertTrue(self.follower.authorize(REQUEST).is_allowed)
        (text,) = map(formatEvent, logged)
        self.assertIn(
            "binding a/b of --authorization-kubeconfig: ignored invalid entries in annotation ", text
        )
        self.assertIn('tower.kubesphere.io/clusters: "Bad Name", ""; valid are: the name of a cluster,', text)

    def test_next_lists(self) -> None:
        """A later list replaces all; an equal one is not a change."""
        self.sync(binding("a"))
        local = self.follower.bindings[1]
        local.replaced([binding("a", "3")], "3")
        self.assertEqual(self.changes, 1)
        local.replaced([binding("b")], "4")
        self.assertFalse(self.follower.authorize(REQUEST).is_allowed)
        self.assertEqual(self.changes, 2)
        self.follower.roles[0].replaced([], "5")
        self.assertEqual(self.changes, 3)
