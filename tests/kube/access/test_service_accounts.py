"""Tests of `tower.kube.access.service_accounts`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.service_accounts import are_names, groups_of_account, user_of_account


class ServiceAccountNameTests(SynchronousTestCase):
    """Users that are service accounts."""

    def test_groups(self) -> None:
        """A service account has two groups."""
        self.assertEqual(user_of_account("a", "b.c"), "system:serviceaccount:a:b.c")
        self.assertEqual(
            groups_of_account("system:serviceaccount:a:b.c"),
            ("system:serviceaccounts", "system:serviceaccounts:a"),
        )

    def test_others(self) -> None:
        """Other names have none."""
        for name in (
            "jane",
            "system:serviceaccount:a",
            "system:serviceaccount:a:b:c",
            "system:serviceaccount::b",
            "system:serviceaccount:a:",
            "system:serviceaccount:a:B",
            "system:serviceaccount:a:b\n",
            "xsystem:serviceaccount:a:b",
            "system:serviceaccount:a.b:c",
            f"system:serviceaccount:{'a' * 64}:b",
            f"system:serviceaccount:a:{'b' * 254}",
        ):
            self.assertEqual(groups_of_account(name), (), name)
        self.assertTrue(are_names("a" * 63, "b" * 253))
