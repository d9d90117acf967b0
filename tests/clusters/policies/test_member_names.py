"""Tests of `tower.clusters.policies.member_names`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.clusters.policies.member_names import MemberNames
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities


class MemberNamesTests(SynchronousTestCase):
    """Users and groups in a member."""

    def test_default(self) -> None:
        """By default the names stay the same; reserved groups of the door are dropped."""
        names = MemberNames()
        self.assertEqual(names.user_of("jane"), "jane")
        own = ["dev", "system:masters", "tower:admins", "kubeadm:cluster-admins", "system:authenticated"]
        self.assertEqual(names.groups_of("jane", own, NONE_ALLOWED), ["dev"])
        allowed = SystemIdentities(("system:masters",))
        self.assertEqual(names.groups_of("jane", own, allowed), ["dev", "system:masters"])

    def test_changed(self) -> None:
        """A template, fixed groups and mapped ones; others are dropped without a star."""
        names = MemberNames("co:{user}", ("guests",), {"co:ops": "ops", "co:qa": "qa"})
        self.assertEqual(names.user_of("jane"), "co:jane")
        self.assertEqual(names.groups_of("jane", ["co:ops", "dev"], NONE_ALLOWED), ["guests", "ops"])
        names = MemberNames("fixed", ("*",), {"co:ops": "dev"})
        self.assertEqual(names.user_of("jane"), "fixed")
        self.assertEqual(names.groups_of("jane", ["co:ops", "dev"], NONE_ALLOWED), ["co:ops", "dev"])

    def test_accounts(self) -> None:
        """A service account of the door gets the prefix, also in its groups."""
        account, groups = "system:serviceaccount:build:ci", ["system:serviceaccounts", "dev"]
        groups.append("system:serviceaccounts:build")
        for prefix in ("door:", "host/"):
            names = MemberNames(account_prefix=prefix)
            self.assertEqual(names.user_of(account), f"{prefix}serviceaccount:build:ci")
            self.assertEqual(
                names.groups_of(account, groups, NONE_ALLOWED),
                [f"{prefix}serviceaccounts", "dev", f"{prefix}serviceaccounts:build"],
            )

    def test_no_account(self) -> None:
        """The groups of accounts are dropped if another user has them; other names stay."""
        names = MemberNames()
        self.assertEqual(names.groups_of("jane", ["system:serviceaccounts:build"], NONE_ALLOWED), [])
        self.assertEqual(names.user_of("system:node:n1"), "system:node:n1")

    def test_facts(self) -> None:
        """The member gets only the facts that the policy names."""
        extra = (("scopes", ("a", "b")), ("example.org/team", ("sea",)))
        self.assertEqual(MemberNames().facts_of(extra), {})
        self.assertEqual(MemberNames(extra=("scopes",)).facts_of(extra), {"scopes": ("a", "b")})
        self.assertEqual(MemberNames(extra=("*",)).facts_of(extra), dict(extra))
