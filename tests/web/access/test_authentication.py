"""Tests of `tower.web.access.authentication`."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import Issues, issue
from tower.clusters.credentials import Credential
from tower.errors import Forbidden, Invalid, Unauthorized
from tower.http.requests import Fields
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities
from tower.web.access.authentication import (
    ANONYMOUS,
    TOKEN_LIMIT,
    Identity,
    authorize_api,
    authorize_cluster,
    check_grant,
)


def identity(credential: Credential) -> Identity:
    """Return the identity of *credential*."""
    return Identity(credential.user, credential.groups, credential)


class AuthenticatorTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Start without credentials."""
        self.clock = Clock()
        self.issues = Issues()
        self.authenticator = self.issues.authenticator(self.clock)

    def refusal(self, certificate: bytes | None, bearer: bytes | None) -> Unauthorized:
        """Return the error of the rejection."""
        error = self.assertRaises(Unauthorized, self.authenticator.authenticate, certificate, bearer)
        assert isinstance(error, Unauthorized)
        return error

    def test_either(self) -> None:
        """A certificate and a token are equivalent."""
        self.issues.put(b"secret", issue())
        for shown in ((b"secret", None), (None, b"secret")):
            who = self.authenticator.authenticate(*shown)
            self.assertEqual((who.user, who.groups, who.credential.id), ("jane", ("dev", "qa"), "c-jane"))
            self.assertNotIn("secret", repr(who))

    def test_spent(self) -> None:
        """A token that was used is Tower's; after a certificate, only tokens with Tower's prefix are."""
        by_token, by_certificate = identity(issue()), identity(evolve(issue(), kind="cert"))
        for token, kept in ((b"towerk-abc", False), (b"eyJhbGciOi", True)):
            self.assertTrue(by_token.uses(token))
            self.assertEqual(by_certificate.uses(token), not kept)
            self.assertFalse(ANONYMOUS.uses(token))

    def test_anonymous(self) -> None:
        """Hole 1: a request without a credential is rejected, and the text has the cure."""
        error = self.refusal(None, None)
        self.assertIn("tower kubeconfig", str(error))
        self.assertEqual(error.reason, "no credential")

    def test_unknown(self) -> None:
        """An unknown credential is rejected, and the text does not contain it."""
        for shown in ((b"guess", None), (None, b"guess"), (None, b""), (None, b"x" * (TOKEN_LIMIT + 1))):
            self.assertNotIn("guess", str(self.refusal(*shown)))

    def test_both(self) -> None:
        """A valid certificate takes precedence over the token; if neither is valid, the first is named."""
        self.issues.put(b"certificate", issue("cert"))
        self.issues.put(b"token", issue("token"))
        self.assertEqual(self.authenticator.authenticate(b"certificate", b"token").user, "cert")
        self.assertEqual(self.authenticator.authenticate(b"stranger", b"token").user, "token")
        self.assertIn("client certificate", str(self.refusal(b"stranger", b"guess")))

    def test_expired(self) -> None:
        """An expired credential is rejected, for new requests and on open connections."""
        self.issues.put(b"secret", issue(expires=100.0))
        self.clock.advance(99.9)
        who = self.authenticator.authenticate(None, b"secret")
        self.authenticator.check(who)
        self.clock.advance(0.1)
        for error in (
            self.refusal(None, b"secret"),
            self.assertRaises(Unauthorized, self.authenticator.check, who),
        ):
            self.assertIn(
                "the credential of jane for cluster alpha expired at 1970-01-01T00:01:40Z", str(error)
            )

    def test_revoked(self) -> None:
        """A revoked credential is rejected at once, also on open connections."""
        self.issues.put(b"secret", issue())
        who = self.authenticator.authenticate(b"secret", None)
        self.issues.put(b"secret", issue(revoked=True))
        self.assertIn("was revoked", str(self.refusal(b"secret", None)))
        self.assertIn("was revoked", str(self.assertRaises(Unauthorized, self.authenticator.check, who)))

    def test_gone(self) -> None:
        """A credential whose cluster was removed is also rejected on open connections."""
        self.issues.put(b"secret", issue())
        who = self.authenticator.authenticate(b"secret", None)
        self.issues.all.clear()
        error = self.assertRaises(Unauthorized, self.authenticator.check, who)
        self.assertIn("was removed, or its cluster", str(error))

    def test_purged(self) -> None:
        """A credential that was purged after its expiry is still reported as expired on open connections."""
        self.issues.put(b"secret", issue())
        who = self.authenticator.authenticate(b"secret", None)
        self.issues.all.clear()
        self.clock.advance(1000)
        self.assertIn("expired", str(self.assertRaises(Unauthorized, self.authenticator.check, who)))

    def test_clock_set_back(self) -> None:
        """A credential from the future is rejected, and the text names the clock."""
        self.issues.put(b"secret", evolve(issue(expires=1e9), issued=1e6))
        self.assertIn("clock", str(self.refusal(b"secret", None)))


class AuthorizeTests(SynchronousTestCase):
    def test_its_cluster(self) -> None:
        """A credential is valid for its own cluster, not for another one or Tower's own API."""
        jane = identity(issue(groups=("tower:admins",)))
        authorize_cluster(jane, "alpha", "u-1")
        error = self.assertRaises(Forbidden, authorize_cluster, jane, "beta", "u-2")
        self.assertEqual(
            str(error),
            "the credential of jane is for cluster alpha and is not valid for cluster beta: "
            "request a kubeconfig for cluster beta",
        )
        self.assertRaises(Forbidden, authorize_api, jane)

    def test_same_name_again(self) -> None:
        """A credential is not valid for a later cluster of the same name."""
        error = self.assertRaises(Forbidden, authorize_cluster, identity(issue()), "alpha", "u-9")
        self.assertIn("an earlier cluster alpha", str(error))

    def test_api(self) -> None:
        """Tower's own API requires an administrator's credential, which is not valid for clusters."""
        admin = identity(issue("root", cluster="", uid="", groups=("tower:admins",)))
        authorize_api(admin)
        self.assertRaises(Forbidden, authorize_cluster, admin, "alpha", "u-1")
        self.assertRaises(Forbidden, authorize_cluster, admin, "", "")
        other = identity(issue(cluster="", uid="", groups=("dev",)))
        self.assertIn("tower:admins", str(self.assertRaises(Forbidden, authorize_api, other)))


class BearerTests(SynchronousTestCase):
    def test_forms(self) -> None:
        """The scheme's case and surrounding blanks are ignored; other schemes have no token."""
        cases = [
            (None, None),
            (b"", None),
            (b"Bearer", None),
            (b"Bearer ", None),
            (b"Basic dTpw", None),
            (b"Bearertoken", None),
            (b"Bearer abc", b"abc"),
            (b"bEARER  abc \t", b"abc"),
            (b"Bearer a b", b"a b"),
        ]
        for value, token in cases:
            line = b"" if value is None else b"Authorization: %b\r\n" % value
            self.assertEqual(Fields(b"Host: h\r\n%b\r\n" % line).bearer, token, value)


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
        check_grant("jane", map(str, range(64)))
        self.assertIn("64 at most", self.refusal("jane", map(str, range(65))))
