"""Tests of `tower.clusters.policies.permitted_rules`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.access_levels import EDIT, FULL, NO_EXEC, READ_ONLY
from tower.clusters.policies.permitted_rules import permitted_rules
from tower.kube.access.rbac import ALL_RIGHTS, GROUP, Rule

READS = ("get", "list", "watch")
CHANGES = ("create", "update", "patch", "delete", "deletecollection")


class PermittedRulesTests(SynchronousTestCase):
    """Rules, by the levels of policies."""

    def limited(self, rule: Rule, levels: int) -> list[Rule]:
        """Return what is left of a rule."""
        return list(permitted_rules([rule], levels))

    def test_all_rights(self) -> None:
        """``*`` becomes the verbs of the level; the level full changes nothing."""
        self.assertEqual(tuple(permitted_rules(ALL_RIGHTS, FULL | READ_ONLY)), tuple(ALL_RIGHTS))
        for level, verbs, paths in (
            (READ_ONLY, READS, ("get", "head", "options")),
            (EDIT, (*READS, *CHANGES), ("get", "head", "options")),
            (NO_EXEC, (*READS, *CHANGES), ("get", "head", "options", "post", "put", "patch", "delete")),
        ):
            objects, others = permitted_rules(ALL_RIGHTS, level)
            self.assertEqual((objects.verbs, others.verbs), (verbs, paths))

    def test_parts(self) -> None:
        """A rule is split by the verbs that are permitted for its groups and resources."""
        resources = ("pods", "pods/exec", "resourcequotas")
        rule = Rule(("*",), ("", "apps"), resources, ("web",))
        everything = (*READS, *CHANGES)
        self.assertEqual(
            self.limited(rule, EDIT),
            [
                Rule(everything, ("apps",), resources, ("web",)),
                Rule(everything, ("",), ("pods", "pods/exec"), ("web",)),
                Rule(READS, ("",), ("resourcequotas",), ("web",)),
            ],
        )
        reads = [Rule(READS, (group,), ("pods", "resourcequotas"), ("web",)) for group in ("apps", "")]
        self.assertEqual(self.limited(rule, READ_ONLY), reads)

    def test_other_rights(self) -> None:
        """Only the level full permits rights without a request, and only some levels change roles."""
        self.assertEqual(self.limited(Rule(("impersonate", "use"), ("",), ("users",)), NO_EXEC), [])
        roles = Rule(("get", "create"), (GROUP,), ("roles",))
        self.assertEqual(self.limited(roles, EDIT), [Rule(("get",), (GROUP,), ("roles",))])
        self.assertEqual(self.limited(roles, EDIT | NO_EXEC), [roles])
