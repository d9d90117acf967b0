"""Tests of `tower.kube.access.rbac_validation`; `tests.integration.test_as_kube_apiserver` has upstream's."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.field_problems import invalid_text
from tower.kube.access.rbac import GROUP, Rule
from tower.kube.access.rbac_validation import (
    escalation_text,
    problems_of_binding,
    problems_of_role,
    with_defaults,
)

ROLE: dict[str, Any] = {"kind": "ClusterRole", "metadata": {"name": "r"}}
BINDING: dict[str, Any] = {
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "b"},
    "roleRef": {"kind": "ClusterRole", "name": "r"},
}


class ValidationTests(SynchronousTestCase):
    """Problems and texts."""

    def test_roles(self) -> None:
        """Names, rules, selectors."""
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
        self.assertEqual(problems_of_role({**ROLE, "rules": [rule]}), [])
        urls = {"verbs": ["get"], "nonResourceURLs": ["/a"]}
        found = problems_of_role({"kind": "Role", "metadata": {"name": "a/b"}, "rules": [{}, urls]})
        self.assertEqual(
            [str(each) for each in found],
            [
                "metadata.name: Invalid value: \"a/b\": may not contain '/'",
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                (
                    'rules[1].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to '
                    "non-resource URLs"
                ),
            ],
        )
        (problem,) = problems_of_role({**ROLE, "aggregationRule": {}})
        self.assertEqual(
            invalid_text(f"ClusterRole.{GROUP}", "r", [problem]),
            'ClusterRole.rbac.authorization.k8s.io "r" is invalid: aggregationRule.clusterRoleSelectors: '
            "Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
        )

    def test_bindings(self) -> None:
        """Defaults, references, subjects, changes."""
        subjects = [{"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "x"}]
        whole = with_defaults({**BINDING, "subjects": subjects})
        (problem,) = problems_of_binding(whole)
        self.assertEqual(
            problem.as_cause(),
            {"reason": "FieldValueRequired", "message": "Required value", "field": "subjects[1].namespace"},
        )
        changed = with_defaults({**BINDING, "roleRef": {"kind": "ClusterRole", "name": "other"}})
        found = problems_of_binding(changed, with_defaults(BINDING))
        self.assertEqual([each.field for each in found], ["roleRef"])
        self.assertIn("cannot change roleRef", found[0].text)
        wrong = with_defaults({**BINDING, "roleRef": {"kind": "Role"}})
        texts = invalid_text(f"ClusterRoleBinding.{GROUP}", "b", problems_of_binding(wrong))
        self.assertIn('[roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole", ', texts)

    def test_escalation(self) -> None:
        """Missing rights are sorted lines."""
        rules = [Rule(("get",), ("",), ("pods",)), Rule(("get",), ("",), ("nodes",))]
        self.assertEqual(
            escalation_text("jane", ["dev"], rules, ["role not found"]),
            'user "jane" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}; resolution errors: [role not found]',
        )
