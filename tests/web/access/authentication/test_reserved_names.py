"""Tests of `tower.web.access.authentication.reserved_names`."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import Invalid
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities
from tower.web.access.authentication.reserved_names import check_grant


class GrantTests(SynchronousTestCase):
    def refusal(self, user: str, groups: Iterable[str] = ()) -> str:
        """Return the text of the rejection."""
        return str(self.assertRaises(Invalid, check_grant, user, groups))

    def test_ordinary(self) -> None:
        """Names of users and groups in any script are accepted."""
        check_grant("jane@example.com", ["dev", "Team Ä", "oidc:ops"])

    def test_reserved(self) -> None:
        """Names reserved by Kubernetes, distributions and Tower are rejected, and the text has the cure."""
        for name in (
            "system:admin",
            "system:masters",
            "system:bootstrappers:kubeadm:default-node-token",
            "system:anything",
            "kubeadm:cluster-admins",
            "kube:admin",
            "tower:admins",
            "system:",
        ):
            for text in (self.refusal(name), self.refusal("jane", ["dev", name])):
                self.assertIn(repr(name), text)
                self.assertIn("choose another name", text)
            self.assertIn(f"group {name!r}", text)
        self.assertIn("omit it", self.refusal("jane", ["system:authenticated"]))

    def test_allowed(self) -> None:
        """Names that a cluster's record allows are accepted there; Tower's own names never are."""
        rule = SystemIdentities(["system:monitoring"])
        check_grant("system:monitoring", ["system:monitoring"], rule)
        self.assertRaises(Invalid, check_grant, "system:admin", [], rule)
        every = SystemIdentities(allow_all=True)
        check_grant("system:admin", ["kubeadm:cluster-admins"], every)
        self.assertRaises(Invalid, check_grant, "jane", ["tower:admins"], every)

    def test_cure(self) -> None:
        """If a cluster's record may allow a name, the error has the command."""
        for name, text in (
            ("kube:admin", "tower cluster set beta --allow-system-identity kube:admin"),
            ("tower:x", ""),
        ):
            said = str(self.assertRaises(Invalid, check_grant, name, [], NONE_ALLOWED, "beta"))
            self.assertIn(text, said)
            self.assertEqual("--allow-system-identity" in said, bool(text))
            self.assertNotIn("--allow-system-identity", self.refusal(name))

    def test_too_many(self) -> None:
        """The number of groups is limited, because each is a header of every request."""
        check_grant("jane", map(str, range(256)))
        self.assertIn("256 at most", self.refusal("jane", map(str, range(257))))
        long = [f"{number:0200}" for number in range(200)]
        self.assertIn(
            "44224 B in a request, and 32768 are the limit: omit groups", self.refusal("jane", long)
        )
