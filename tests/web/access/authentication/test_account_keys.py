"""Tests of `tower.web.access.authentication.account_keys`."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tests.fakes.id_tokens import account_key_id, ec_key, public_pem, rsa_key
from tower.web.access.authentication.account_keys import KEYS_LIMIT, FileKeys, read_public_keys
from tower.web.access.authentication.oidc.key_set import KeySet


def private_pem(key: Any, form: PrivateFormat = PrivateFormat.TraditionalOpenSSL) -> bytes:
    """Return the private key in PEM."""
    pem: bytes = key.private_bytes(Encoding.PEM, form, NoEncryption())
    return pem


class PublicKeyTests(SynchronousTestCase):
    """Files with keys."""

    def test_forms(self) -> None:
        """Public keys, private keys and certificates; other blocks and text are ignored."""
        first, second, third = rsa_key("first"), ec_key(), ec_key(ec.SECP384R1)
        content = b"\n".join(
            (
                b"keys of alpha",
                public_pem(first),
                b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----",
                private_pem(second),
                private_pem(third, PrivateFormat.PKCS8),
                public_pem(ed25519.Ed25519PrivateKey.generate()),
                authority("accounts").pem,
            )
        )
        found = read_public_keys(content)
        self.assertEqual(len(found), 4)
        for key in (first, second, third):
            self.assertTrue(found.has(account_key_id(key)))
        self.assertEqual(len(found.thumbprints), 4)

    def test_wrong(self) -> None:
        """A file without keys, and keys that are not safe, are errors with the cure."""
        none = "data does not contain any valid RSA or ECDSA public keys: name a PEM file with such a key"
        for content, text in (
            (b"", none),
            (b"-----BEGIN PUBLIC KEY-----\nxxxx\n-----END PUBLIC KEY-----", none),
            (public_pem(dsa.generate_private_key(1024)), none),
            (public_pem(rsa_key("short", 1024)), "RSA key of 1024 bits, and 2048 are required"),
            (public_pem(ec_key(ec.SECP256K1)), "on the curve secp256k1"),
            (public_pem(ec_key()) * (KEYS_LIMIT + 1), "has 101 keys, and 100 are the limit"),
        ):
            self.assertIn(text, str(self.assertRaises(ValueError, read_public_keys, content)))

    def test_files(self) -> None:
        """Several files are one set; a changed file counts at once."""

        class File:
            """A file with a key."""

            def __init__(self, key: Any) -> None:
                self.value = read_public_keys(public_pem(key))

        first, second = File(rsa_key("first")), File(ec_key())
        keys = FileKeys([first, second])
        (removed,) = first.value.thumbprints
        self.assertEqual(len(keys.of("any")), 2)
        self.assertTrue(keys.has(removed))
        first.value = KeySet(())
        self.assertEqual(len(keys.of("any")), 1)
        self.assertFalse(keys.has(removed))
        self.assertEqual(keys.problem("any"), "")
