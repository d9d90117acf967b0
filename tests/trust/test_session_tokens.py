"""Tests of `tower.trust.session_tokens`."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from tower.trust.session_tokens import (
    BEARER_PREFIX,
    LIFETIME,
    BadSessionToken,
    SessionTokenClaims,
    check_public_text,
    is_session_token,
    new_token,
    public_text,
    session_of,
    verified_claims,
)

NOW = 1_700_000_000.0


class SessionTokensTests(SynchronousTestCase):
    """Tokens of one key."""

    def setUp(self) -> None:
        """Make the key."""
        self.key = Ed25519PrivateKey.generate()
        self.public = public_text(self.key)

    def test_own(self) -> None:
        """A token names its session and its times."""
        token = new_token("s-1", self.key, NOW).encode()
        self.assertTrue(is_session_token(token))
        self.assertEqual(session_of(token), "s-1")
        self.assertEqual(verified_claims(token, self.public), SessionTokenClaims(NOW, NOW + LIFETIME))

    def test_cluster(self) -> None:
        """A token may be for one cluster only."""
        token = new_token("s-1", self.key, NOW, cluster="alpha").encode()
        self.assertEqual(verified_claims(token, self.public).cluster, "alpha")

    def test_another_key(self) -> None:
        """Tokens that another key has signed, or none, are rejected."""
        token = new_token("s-1", Ed25519PrivateKey.generate(), NOW)
        header, claims, _ = token.split(".")
        secret = jwt.api_jws.encode(b'{"iat":1,"exp":2}', self.public, "HS256", {"kid": "s-1"})
        for bad in (token, f"{header}.{claims}.", f"{BEARER_PREFIX}{secret}"):
            self.assertRaises(BadSessionToken, verified_claims, bad.encode(), self.public)

    def test_malformed(self) -> None:
        """Headers of other tokens, and times of other types, are rejected."""
        for header in ({}, {"typ": "JWT"}, {"typ": "tower-session+jwt", "alg": "none"}):
            text = urlsafe_b64encode(json.dumps({"kid": "s-1", **header}).encode()).decode().rstrip("=")
            self.assertRaises(BadSessionToken, session_of, f"{BEARER_PREFIX}{text}.e30.x".encode())
        for payload in (
            b"x",
            b"[]",
            b"{}",
            b'{"iat":"1","exp":2}',
            b'{"iat":true,"exp":2}',
            b'{"iat":1e3,"exp":2}',
            b'{"iat":1,"exp":2,"cluster":7}',
        ):
            token = jwt.api_jws.encode(payload, self.key, "EdDSA", {"kid": "s-1"})
            bad = f"{BEARER_PREFIX}{token}".encode()
            self.assertRaises(BadSessionToken, verified_claims, bad, self.public)

    def test_form(self) -> None:
        """Other bearer tokens are of other methods."""
        for other in (b"towerk-abc", b"a.b.c", b"towerk-" + b"a" * 2000 + b".b.c"):
            self.assertFalse(is_session_token(other))

    def test_public_key(self) -> None:
        """Only public keys of the right size are accepted."""
        self.assertEqual(check_public_text(self.public), self.public)
        for bad in (None, 7, "", "x", "AAAA", self.public * 2):
            self.assertRaises(ValueError, check_public_text, bad)
