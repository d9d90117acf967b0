"""Tests of `tower.member.policy.policy_document`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.anything import ANYTHING
from tests.fakes.owner_policies import document
from tower.clusters.policies.time_window import TimeWindow
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.member.policy.policy_document import read_policy

GOOD = b"""
apiVersion: tower.kubesphere.io/v1alpha1
kind: AgentPolicy
metadata: {name: alpha}
spec:
  allow:
  - subjects:
    - {kind: Group, name: developers}
    access: no-exec
    namespaces: [dev, test]
    timeWindow: {days: [Mon, Tue], from: '08:00', to: '18:00', timeZone: Europe/Berlin}
  - access: read-only
  - targets: [db]
"""


class PolicyDocumentTests(SynchronousTestCase):
    def rejected(self, data: bytes) -> str:
        """Return why a document is rejected."""
        return str(self.assertRaises(ValueError, read_policy, data))

    def test_rules(self) -> None:
        """A document has rules; absent fields mean any."""
        first, second, third = read_policy(GOOD).rules
        self.assertEqual(first.subjects, frozenset({("Group", "developers")}))
        self.assertEqual((first.access, first.namespaces), ("no-exec", frozenset({"dev", "test"})))
        self.assertEqual(first.window, TimeWindow((0, 1), 480, 1080, "Europe/Berlin"))
        self.assertEqual(second, OwnerRule(access="read-only"))
        self.assertEqual(third.targets, ("db",))
        self.assertEqual(read_policy(document()), OwnerPolicy())

    def test_documents(self) -> None:
        """Another document is rejected, with the position and the cure."""
        self.assertIn("is not YAML (line 2)", self.rejected(b"a: 1\n\tb: ["))
        self.assertEqual(
            self.rejected(b"kind: a\n---\nkind: b\n"),
            "is not YAML (line 2): found another document: repair it",
        )
        self.assertEqual(self.rejected(b"a: \xff"), "is not YAML: not UTF-8: repair it")
        self.assertEqual(self.rejected(b"[" * 50_000), "is not YAML: nested too deeply: repair it")
        self.assertIn("already set in map", self.rejected(b"kind: a\nkind: b\n"))
        self.assertIn("must be an object", self.rejected(b""))
        self.assertIn("kind: 'List': must be AgentPolicy", self.rejected(document(kind="List")))
        self.assertIn("apiVersion: 'v1'", self.rejected(document(apiVersion="v1")))
        self.assertIn("the document.rules: unknown", self.rejected(document(rules=[])))
        self.assertIn("[] forbids everything", self.rejected(document(spec={"allow": None})))
        self.assertIn("more than 1048576 B", self.rejected(b" " * (1 << 20) + b"x"))

    def test_fields(self) -> None:
        """A field that is misspelled, empty or without effect is rejected: it might have been a limit."""
        for rule, text in (
            ({"namespace": ["dev"]}, "spec.allow[0].namespace: unknown; the fields are access, namespaces"),
            ({"namespaces": None}, "spec.allow[0].namespaces: has no value"),
            ({"namespaces": []}, "spec.allow[0].namespaces: is empty"),
            ({"namespaces": ["*"]}, "omit the field for all namespaces"),
            ({"namespaces": ["Dev"]}, "'Dev': must be the name of a namespace"),
            ({"subjects": []}, "spec.allow[0].subjects: is empty: list users and groups, or omit the field"),
            ({"subjects": [{"kind": "Team", "name": "a"}]}, "spec.allow[0].subjects[0].kind: 'Team'"),
            ({"access": "none"}, "spec.allow[0].access: 'none': must be full, edit, no-exec or read-only"),
            ({"targets": ["db"], "access": "read-only"}, "spec.allow[0].access: has no effect on streams"),
            ({"targets": ["*"], "namespaces": ["dev"]}, "spec.allow[0].namespaces: has no effect"),
            ({"timeWindow": {"from": "08:00"}}, "spec.allow[0].timeWindow.timeZone: None: required"),
            ("dev", "spec.allow[0]: 'dev': must be an object"),
        ):
            self.assertIn(text, self.rejected(document(rule)))

    @given(ANYTHING)
    def test_anything(self, value: Any) -> None:
        """Every document is read, or rejected with one line."""
        for data in (document(value), json.dumps(value).encode()):
            try:
                read_policy(data)
            except ValueError as e:
                self.assertNotIn("\n", str(e))
