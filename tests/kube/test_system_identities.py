"""Tests of `tower.kube.system_identities`: which names belong to the cluster itself."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Invalid
from tower.kube.system_identities import (
    ADMINISTRATORS,
    AUTHENTICATED,
    NAME_LIMIT,
    NONE_ALLOWED,
    SystemIdentities,
    check_allowed,
    is_system,
)

SYSTEM = (
    "system:masters",
    "system:admin",
    "system:cluster-admins",
    "system:node:n1",
    "system:bootstrappers:kubeadm:default-node-token",
    "system:anything",
    "system:",
    "kubeadm:cluster-admins",
    "kube:admin",
    "eks:addon-manager",
    "clusterAdmin",
)

# Kubernetes compares names byte for byte.
PEOPLE = (
    "jane",
    "admin",
    "systems",
    "system",
    "System:masters",
    "SYSTEM:MASTERS",
    "my-system:masters",
    "kubeadm:cluster-admins2",
    "KUBEADM:cluster-admins",
    "clusteradmin",
    "oidc:system:masters",
    "",
)


class RefusalTests(SynchronousTestCase):
    """Rejected names."""

    def test_system(self) -> None:
        """System identities are rejected, also with blanks at the ends, which Go trims."""
        for name in SYSTEM:
            for spelling in (name, f" {name}", f"\t {name} \t"):
                self.assertTrue(is_system(spelling), spelling)
                self.assertTrue(NONE_ALLOWED.refuses(spelling), spelling)

    def test_people(self) -> None:
        """Similar names are not system identities."""
        for name in PEOPLE:
            self.assertFalse(is_system(name), name)
            self.assertFalse(NONE_ALLOWED.refuses(name), name)

    def test_administrators(self) -> None:
        """Each administrator's name is one that the prefix does not cover."""
        for name in ADMINISTRATORS:
            self.assertFalse(name.startswith("system:"))
            self.assertTrue(NONE_ALLOWED.refuses(name))

    def test_allowed(self) -> None:
        """A name that is allowed is, with blanks around it too, and no other one."""
        rule = SystemIdentities(["system:cluster-admins"])
        self.assertFalse(rule.refuses("system:cluster-admins"))
        self.assertFalse(rule.refuses(" system:cluster-admins\t"))
        for name in (*SYSTEM, "system:cluster-admins2", "system:cluster-admin"):
            self.assertEqual(rule.refuses(name), name != "system:cluster-admins", name)

    def test_all(self) -> None:
        """All can be allowed."""
        rule = SystemIdentities(allow_all=True)
        self.assertEqual([name for name in (*SYSTEM, *PEOPLE) if rule.refuses(name)], [])


class AllowanceTests(SynchronousTestCase):
    """Names that can be allowed."""

    def test_good(self) -> None:
        """Every identity of the system may be."""
        for name in (*SYSTEM, *ADMINISTRATORS):
            if name != "system:":
                self.assertEqual(check_allowed(name), name)

    def test_bad(self) -> None:
        """Malformed or useless names and patterns are rejected by name, with the cure."""
        for name, text in (
            ("jane", "is not a system identity"),
            ("kubeadm:cluster-admin", "is not a system identity"),
            ("System:masters", "is not a system identity"),
            (AUTHENTICATED, "omit it"),
            ("system:", "in full"),
            ("system:node:*", "in full"),
            ("*", "is not a system identity"),
            ("", "1 to 253"),
            ("system:masters ", "without blanks"),
            ("system:\n", "printable"),
            ("system:\u00e4", "ASCII"),
            ("system:" + "x" * NAME_LIMIT, "1 to 253"),
        ):
            error = str(self.assertRaises(Invalid, check_allowed, name))
            self.assertIn(repr(name), error)
            self.assertIn(text, error)
