"""Tests of `tower.web.access.authentication.oidc.key_set`."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import GOOD, ec_key, id_token, jwk, key_set, rsa_key
from tower.web.access.authentication.oidc.issuer import ALGORITHMS
from tower.web.access.authentication.oidc.key_set import KEYS_LIMIT, read_key_set
from tower.web.access.authentication.oidc.tokens import (
    ReceivedToken,
    SignatureUnknown,
    TokenRejected,
    received_token,
)


def received(token: bytes) -> ReceivedToken:
    """Return a token before its verification."""
    found = received_token(token)
    assert found is not None
    return found


def segment(data: bytes) -> bytes:
    """Return base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")


class KeySetTests(SynchronousTestCase):
    """Signatures."""

    def rejected(
        self, token: bytes, keys: Any = None, algorithms: tuple[str, ...] = ("RS256",)
    ) -> TokenRejected:
        """Return the error of a token."""
        found = read_key_set(keys or key_set("first"))
        error: TokenRejected = self.assertRaises(TokenRejected, found.verified, received(token), algorithms)
        return error

    def test_algorithms(self) -> None:
        """Each algorithm is verified with a key of its kind."""
        kinds = {"RS": rsa_key(), "PS": rsa_key()}
        curves: dict[str, Any] = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}
        for name in ALGORITHMS:
            key = kinds.get(name[:2]) or ec_key(curves[name])
            keys = read_key_set({"keys": [jwk(key)]})
            claims = keys.verified(received(id_token(key=key, algorithm=name)), ALGORITHMS).claims
            self.assertEqual(claims, GOOD, name)

    def test_wrong_curve(self) -> None:
        """A key of another curve or kind has not signed the token."""
        token = id_token(key=ec_key(), algorithm="ES256")
        for key in (ec_key(ec.SECP384R1), rsa_key()):
            self.assertIsInstance(self.rejected(token, {"keys": [jwk(key)]}, ALGORITHMS), SignatureUnknown)

    def test_not_allowed(self) -> None:
        """``none``, a shared secret and other algorithms are not accepted, whatever the key set has."""
        public = (
            rsa_key()
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        payload = segment(json.dumps(GOOD).encode())
        for algorithm in ("none", "None", "HS256", ""):
            signed = segment(json.dumps({"alg": algorithm, "kid": "first"}).encode()) + b"." + payload
            signature = segment(hmac.new(public, signed, hashlib.sha256).digest())
            secret = {"kty": "oct", "k": segment(public).decode(), "kid": "first"}
            for each in (signature, b""):
                keys = {"keys": [*key_set("first")["keys"], secret]}
                error = self.rejected(signed + b"." + each, keys, ALGORITHMS)
                self.assertIn(f'got "{algorithm}"', str(error))
                self.assertNotIsInstance(error, SignatureUnknown)
        error = self.rejected(id_token(algorithm="RS512"))
        self.assertIn('expected ["RS256"] got "RS512"', str(error))

    def test_key_ids(self) -> None:
        """A token with a key's ID has to be of that key; one without is tried with all, as are duplicates."""
        keys = read_key_set(key_set("a", "b"))
        keys.verified(received(id_token(name="b")), ("RS256",))
        keys.verified(received(id_token(name=None, key=rsa_key("b"))), ("RS256",))
        error = self.rejected(id_token(name="a", key=rsa_key("b")), key_set("a", "b"))
        self.assertIsInstance(error, SignatureUnknown)
        twice = {"keys": [jwk(rsa_key("a"), "x"), jwk(rsa_key("b"), "x")]}
        read_key_set(twice).verified(received(id_token(name="x", key=rsa_key("b"))), ("RS256",))

    def test_changed(self) -> None:
        """Any change of a token invalidates it."""
        header, payload, signature = id_token().split(b".")
        other = segment(json.dumps({**GOOD, "sub": "joe"}).encode())
        self.assertIsInstance(self.rejected(b".".join((header, other, signature))), SignatureUnknown)
        self.assertIsInstance(self.rejected(b".".join((header, payload, b""))), SignatureUnknown)
        self.assertIn("malformed jwt", str(self.rejected(b".".join((header, payload, b"!")))))

    def test_own_key_in_header(self) -> None:
        """A key in the header is not used."""
        key = rsa_key("attacker")
        header = segment(json.dumps({"alg": "RS256", "kid": "first", "jwk": jwk(key), "x5c": ["x"]}).encode())
        _, payload, signature = id_token(key=key).split(b".")
        self.assertIsInstance(self.rejected(b".".join((header, payload, signature))), SignatureUnknown)

    def test_unusable_keys(self) -> None:
        """Keys for encryption, and short, malformed or symmetric ones are omitted; a set needs another."""
        good = jwk(rsa_key())
        bad: list[Any] = [
            {**good, "use": "enc"},
            jwk(rsa_key("short", 1024)),
            {**good, "alg": "HS256"},
            {**good, "alg": "RSA-OAEP"},
            {**good, "n": "!"},
            {**good, "e": None},
            {**good, "kid": 7},
            {"kty": "oct", "k": "YQ"},
            {"kty": ["RSA"]},
            {**jwk(ec_key()), "crv": "P-384"},
            None,
            "RSA",
        ]
        self.assertEqual(len(read_key_set({"keys": [*bad, good]})), 1)
        for each in bad:
            self.assertRaises(ValueError, read_key_set, {"keys": [each]})
        value: Any
        for value in (None, [], {}, {"keys": []}, {"keys": "x"}, "<html>"):
            self.assertRaises(ValueError, read_key_set, value)
        with_private = {**good, "d": "AQAB", "p": "AQAB"}
        read_key_set({"keys": [with_private]}).verified(received(id_token()), ("RS256",))

    def test_bounded(self) -> None:
        """Only so many keys are read."""
        self.assertEqual(len(read_key_set({"keys": [jwk(rsa_key())] * 1000})), KEYS_LIMIT)

    def test_key_for_one_algorithm(self) -> None:
        """A key that names its algorithm verifies no other."""
        keys = {"keys": [jwk(rsa_key(), alg="RS256")]}
        self.assertIsInstance(
            self.rejected(id_token(algorithm="RS512"), keys, ("RS256", "RS512")), SignatureUnknown
        )

    def test_payload(self) -> None:
        """A signed payload that is not an object is rejected."""
        key, token = rsa_key(), received(id_token())
        for payload in (b"[]", b"x", b'{"a": NaN}'):
            import jwt

            text = jwt.api_jws.encode(payload, key, "RS256", {"kid": "first"}).encode()
            made = ReceivedToken(text, token.issuer, "RS256", "first")
            error = self.assertRaises(
                TokenRejected, read_key_set(key_set("first")).verified, made, ("RS256",)
            )
            self.assertIn("failed to unmarshal claims", str(error))
