"""Tests of `tower.web.access.audit.changes`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import Lines, audit_to, policy_of
from tower.store import MemoryStore
from tower.store.records import Delete, DeleteWhere, Require, Update
from tower.web.access.audit.changes import NEW_DIGEST, OLD_DIGEST, REQUEST, ChangeRecorder, by_author
from tower.web.access.authentication.identity import Identity

NAME = "cluster.kubesphere.io/name"


class ChangeRecorderTests(SynchronousTestCase):
    """Tests of `ChangeRecorder`."""

    def setUp(self) -> None:
        """Observe a store."""
        self.lines = Lines()
        self.audit = audit_to(self.lines, Clock().seconds)
        self.store = MemoryStore()
        self.store.observe = ChangeRecorder(self.audit, self.store).observe

    def events(self) -> list[tuple[str, str, str]]:
        """Return verb, resource and name of the new events."""
        return [
            (each["verb"], each["objectRef"]["resource"], each["objectRef"]["name"])
            for each in self.lines.events()
        ]

    def test_changes(self) -> None:
        """Each change has an event; the new digest of one is the old one of the next."""
        self.store.create("accesspolicies", "p", {"a": "secret"})
        self.store.update("accesspolicies", "p", {"a": 2})
        self.store.delete("accesspolicies", "p")
        first, second, third = self.lines.events()
        self.assertNotIn("secret", str(first))
        self.assertEqual([each["verb"] for each in (first, second, third)], ["create", "update", "delete"])
        self.assertNotIn(OLD_DIGEST, first["annotations"])
        self.assertNotIn(NEW_DIGEST, third["annotations"])
        self.assertRegex(first["annotations"][NEW_DIGEST], r"\Asha256:[0-9a-f]{64}\Z")
        self.assertEqual(first["annotations"][NEW_DIGEST], second["annotations"][OLD_DIGEST])
        self.assertEqual(second["annotations"][NEW_DIGEST], third["annotations"][OLD_DIGEST])
        self.assertEqual(first["user"], {"username": "tower:proxy"})
        self.assertEqual(
            first["objectRef"],
            {
                "resource": "accesspolicies",
                "name": "p",
                "apiGroup": "cluster.kubesphere.io",
                "apiVersion": "v1alpha1",
            },
        )

    def test_author(self) -> None:
        """The author is the user whose request is being answered; an annotation has its ID."""
        request: Any = SimpleNamespace(
            identity=Identity("jane", ("ops",), uid="7"),
            request_id="id-1",
            target=b"/apis/x?y",
            channel=SimpleNamespace(peer=SimpleNamespace(address="192.0.2.7")),
        )

        async def answer() -> None:
            await self.store.create("clusters", "alpha", {"uid": "u"})

        self.successResultOf(by_author(request, answer()))
        (event,) = self.lines.events()
        self.assertEqual((event["annotations"][REQUEST], event["requestURI"]), ("id-1", "/apis/x?y"))
        self.assertNotEqual(event["auditID"], "id-1")  # its events have that one, each stage once
        self.assertEqual(
            event["user"], {"username": "jane", "uid": "7", "groups": ["ops", "system:authenticated"]}
        )
        self.assertEqual(event["annotations"][NAME], "alpha")

    def test_roles_and_sessions(self) -> None:
        """Roles and bindings appear as the objects that they are; confirmations of sessions do not."""
        self.store.create("rbacobjects", "clusterrolebindings/dev", {"a": 1})
        self.store.create("rbacobjects", "roles/default/r", {"a": 1})
        self.store.create("loginsessions", "s-1", {"user": "jane", "confirmed": 1, "sealed": "x"})
        self.store.update("loginsessions", "s-1", {"user": "jane", "confirmed": 2, "sealed": "y"})
        self.store.delete("loginsessions", "s-1")
        binding, role, *sessions = self.lines.events()
        self.assertEqual(
            role["objectRef"],
            {
                "resource": "roles",
                "namespace": "default",
                "name": "r",
                "apiGroup": "rbac.authorization.k8s.io",
                "apiVersion": "v1",
            },
        )
        self.assertEqual(binding["requestURI"], "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dev")
        self.assertEqual(
            [(each["verb"], each["objectRef"]["name"]) for each in sessions],
            [("create", "s-1"), ("delete", "s-1")],
        )
        self.assertNotIn("sealed", str(sessions))

    def test_nothing(self) -> None:
        """States, other kinds, and failed transactions have no event."""
        self.store.create("clusters", "alpha", {"uid": "u", "conditions": []})
        self.store.update("clusters", "alpha", {"uid": "u", "conditions": [1]})
        self.store.create("events", "e", {})
        self.store.transact([Require("clusters", "alpha")])
        self.failureResultOf(self.store.transact([Update("clusters", "alpha", {}), Delete("clusters", "b")]))
        self.failureResultOf(self.store.create("clusters", "alpha", {}))
        self.assertEqual(self.events(), [("create", "clusters", "alpha")])

    def test_together(self) -> None:
        """A transaction has an event for each record that it removes."""
        self.store.create("clusters", "alpha", {"uid": "u"})
        for name in ("one", "two"):
            self.store.create("credentials", name, {"cluster_uid": "u", "cluster": "alpha"})
        self.store.create("credentials", "three", {"cluster_uid": "v"})
        self.lines.clear()
        self.store.transact([Delete("clusters", "alpha"), DeleteWhere("credentials", "cluster_uid", "u")])
        self.assertEqual(
            self.events(),
            [
                ("delete", "clusters", "alpha"),
                ("delete", "credentials", "one"),
                ("delete", "credentials", "two"),
            ],
        )

    def test_policy(self) -> None:
        """The policy decides on changes, too."""
        self.audit.use(
            policy_of("rules: [{level: None, users: ['tower:proxy'], verbs: [create]}, {level: Metadata}]")
        )
        self.store.create("credentials", "c", {"a": 1})
        self.store.delete("credentials", "c")
        self.assertEqual(self.events(), [("delete", "credentials", "c")])
