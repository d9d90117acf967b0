"""Tests of `tower.clusters.policies.default_roles`, and of the records of roles and bindings."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.default_roles import AUTO_UPDATE, default_objects, ensure_default_roles
from tower.clusters.policies.rbac_object import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE
from tower.clusters.policies.rbac_objects import RbacObjects, decode_rbac, encode_rbac
from tower.kube.access.rbac import Rule
from tower.kube.access.rbac_validation import problems_of_binding, problems_of_role
from tower.kube.request_info import RequestInfo
from tower.store import MemoryStore
from tower.store.kinds import RBAC_OBJECTS
from tower.store.records import Record
from tower.web.api.discovery import GROUP_VERSIONS


class DefaultRoleTests(SynchronousTestCase):
    """The objects after starts of Tower."""

    def setUp(self) -> None:
        """Start Tower for the first time."""
        self.store = MemoryStore()
        clock: Any = Clock()
        self.objects = RbacObjects(self.store, clock)
        self.roles, self.bindings = self.objects.of(CLUSTER_ROLE), self.objects.of(CLUSTER_ROLE_BINDING)
        self.start()

    def start(self) -> None:
        """Do the same again."""
        self.successResultOf(Deferred.fromCoroutine(ensure_default_roles(self.objects)))

    def change(self, objects: Any, name: str, **parts: Any) -> None:
        """Change an object."""
        edit = objects.change(name, lambda old: evolve(old, **parts))
        self.successResultOf(Deferred.fromCoroutine(edit))

    def test_valid(self) -> None:
        """All default objects are valid, and a second start changes nothing."""
        for each in default_objects(self.objects):
            value = each.as_value()
            check = problems_of_binding if each.kind.is_binding else problems_of_role
            self.assertEqual(check(value), [], each.name)
        version = self.store.version
        self.start()
        self.assertEqual(self.store.version, version)

    def test_resources(self) -> None:
        """The roles for Tower itself name resources that its API has."""
        known = {each.name for found in GROUP_VERSIONS for each in found.resources}
        for each in default_objects(self.objects):
            if each.name.startswith("tower:") and each.name != "tower:admin":
                for rule in each.body["rules"]:
                    self.assertLessEqual(set(rule.get("resources", ())), known, each.name)

    def test_login_sessions(self) -> None:
        """Auditors list login sessions, and only administrators of Tower may end them."""
        for name, verb, expected in (
            ("tower:viewer", "list", False),
            ("tower:auditor", "list", True),
            ("tower:auditor", "delete", False),
            ("tower:cluster-admin", "list", False),
            ("tower:admin", "delete", True),
        ):
            rules = map(Rule.of, self.roles.require(name).body["rules"])
            group = "cluster.kubesphere.io"
            info = RequestInfo(verb, "", group, "v1alpha1", resource="loginsessions", is_resource=True)
            self.assertEqual(any(rule.allows(info) for rule in rules), expected, (name, verb))

    def test_reconciled(self) -> None:
        """Missing objects, rules and subjects come back; further ones stay."""
        more = {"verbs": ["get"], "nonResourceURLs": ["/more"]}
        self.change(self.roles, "system:discovery", body={"rules": [more]})
        self.change(self.bindings, "system:discovery", body={**self.bound("cluster-admin"), "subjects": []})
        self.change(
            self.bindings, "system:basic-user", body={**self.bound("system:basic-user"), "subjects": []}
        )
        self.successResultOf(Deferred.fromCoroutine(self.roles.remove("tower:viewer", lambda _: None)))
        self.start()
        rules = self.roles.require("system:discovery").body["rules"]
        self.assertEqual(rules[0], more)
        self.assertIn({"verbs": ["get"], "nonResourceURLs": ["/apis/*"]}, rules)
        self.assertEqual(
            self.bindings.require("system:discovery").body["roleRef"]["name"], "system:discovery"
        )
        self.assertEqual(len(self.bindings.require("system:basic-user").body["subjects"]), 1)
        self.assertIsNotNone(self.roles.get("tower:viewer"))

    def test_protected(self) -> None:
        """An object with the annotation is left alone."""
        self.change(self.roles, "system:discovery", body={"rules": []}, annotations={AUTO_UPDATE: "false"})
        self.start()
        self.assertEqual(self.roles.require("system:discovery").body, {"rules": []})

    def bound(self, name: str) -> dict[str, Any]:
        """Return the body of a binding."""
        group = "rbac.authorization.k8s.io"
        return {"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}}

    def test_records(self) -> None:
        """A record is read as it was written; others grant nothing, and are logged."""
        item = evolve(self.objects.new(ROLE, "a/r", {"rules": []}), labels={"a": "b"})
        record = Record(RBAC_OBJECTS, "roles/a/r", 3, encode_rbac(item))
        self.assertEqual(decode_rbac(record), evolve(item, resource_version=3))
        for name, value in (
            ("roles/b/r", {}),
            ("roles/a/r", {"kind": "Robot"}),
            ("roles/a/r", {"body": {"subjects": []}}),
            ("roles/a/r", {"uid": None, "body": None}),
        ):
            wrong = Record(RBAC_OBJECTS, name, 3, {**encode_rbac(item), **value})
            self.assertIsNone(self.objects.read(wrong))
        self.assertEqual(len(self.flushLoggedErrors()), 0)
