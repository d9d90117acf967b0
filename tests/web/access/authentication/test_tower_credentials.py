"""Tests of `tower.web.access.authentication.tower_credentials`."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import Issues, authenticated, issue
from tower.clusters.credentials import Credential
from tower.errors import Unauthorized
from tower.web.access.authentication.identity import ANONYMOUS, TOKEN_LIMIT, Identity


def identity(credential: Credential) -> Identity:
    """Return the identity of *credential*."""
    return Identity(credential.user, credential.groups, credential)


class CredentialAuthenticatorTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Start without credentials."""
        self.clock = Clock()
        self.issues = Issues()
        self.authenticator = self.issues.authenticator(self.clock)

    def refusal(self, certificate: bytes | None, bearer: bytes | None) -> Unauthorized:
        """Return the error of the rejection."""
        error = self.assertRaises(Unauthorized, authenticated, self.authenticator, certificate, bearer)
        assert isinstance(error, Unauthorized)
        return error

    def test_either(self) -> None:
        """A certificate and a token are equivalent."""
        self.issues.put(b"secret", issue())
        for shown in ((b"secret", None), (None, b"secret")):
            who = authenticated(self.authenticator, *shown)
            self.assertEqual((who.user, who.groups, who.session), ("jane", ("dev", "qa"), "c-jane"))
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
        self.assertEqual(authenticated(self.authenticator, b"certificate", b"token").user, "cert")
        self.assertEqual(authenticated(self.authenticator, b"stranger", b"token").user, "token")
        self.assertIn("client certificate", str(self.refusal(b"stranger", b"guess")))

    def test_expired(self) -> None:
        """An expired credential is rejected, for new requests and on open connections."""
        self.issues.put(b"secret", issue(expires=100.0))
        self.clock.advance(99.9)
        who = authenticated(self.authenticator, None, b"secret")
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
        who = authenticated(self.authenticator, b"secret", None)
        self.issues.put(b"secret", issue(revoked=True))
        self.assertIn("was revoked", str(self.refusal(b"secret", None)))
        self.assertIn("was revoked", str(self.assertRaises(Unauthorized, self.authenticator.check, who)))

    def test_gone(self) -> None:
        """A credential whose cluster was removed is also rejected on open connections."""
        self.issues.put(b"secret", issue())
        who = authenticated(self.authenticator, b"secret", None)
        self.issues.all.clear()
        error = self.assertRaises(Unauthorized, self.authenticator.check, who)
        self.assertIn("was removed, or its cluster", str(error))

    def test_purged(self) -> None:
        """A credential that was purged after its expiry is still reported as expired on open connections."""
        self.issues.put(b"secret", issue())
        who = authenticated(self.authenticator, b"secret", None)
        self.issues.all.clear()
        self.clock.advance(1000)
        self.assertIn("expired", str(self.assertRaises(Unauthorized, self.authenticator.check, who)))

    def test_clock_set_back(self) -> None:
        """A credential from the future is rejected, and the text names the clock."""
        self.issues.put(b"secret", evolve(issue(expires=1e9), issued=1e6))
        self.assertIn("clock", str(self.refusal(b"secret", None)))
