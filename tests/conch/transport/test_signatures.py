"""Tests of `tower.conch.transport.signatures`."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from twisted.conch.ssh.common import MP, NS
from twisted.conch.ssh.keys import Key
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_keys import KEYS, PRIVATE
from tower.conch.transport.fields import Malformed
from tower.conch.transport.keys import ED25519
from tower.conch.transport.signatures import (
    ECDSA_P256,
    ECDSA_P384,
    ECDSA_P521,
    RSA,
    RSA_SHA2_256,
    RSA_SHA2_512,
    SIGNATURES,
    PrivateKey,
    key_type,
    sign,
    verify,
)

DATA = b"signed data"
EVERY = [(kind, name) for kind, names in SIGNATURES.items() for name in names]
P256 = Key(PRIVATE[ECDSA_P256])


class SignTests(SynchronousTestCase):
    """Every kind of key and signature."""

    def test_verified(self) -> None:
        """Our signatures are verified, by us and by Conch, and name their algorithm."""
        for kind, name in EVERY:
            for _ in range(8):  # halves of ECDSA's signatures differ in length
                signature = sign(PRIVATE[kind], name, DATA)
                self.assertTrue(verify(name, KEYS[kind].blob, signature, DATA), name)
                self.assertTrue(Key.fromString(KEYS[kind].blob).verify(signature, DATA), name)
                self.assertTrue(signature.startswith(NS(name)))

    def test_conch_signs(self) -> None:
        """Conch's signatures are verified."""
        for kind, name in EVERY:
            conch = Key(PRIVATE[kind])
            signature = conch.sign(DATA, signatureType=name)
            self.assertTrue(verify(name, conch.blob(), signature, DATA), name)

    def test_not_verified(self) -> None:
        """Other data, another key of the same type, and another algorithm's signature are not."""
        others: dict[bytes, PrivateKey] = {
            ED25519: ed25519.Ed25519PrivateKey.generate(),
            ECDSA_P256: ec.generate_private_key(ec.SECP256R1()),
            ECDSA_P384: ec.generate_private_key(ec.SECP384R1()),
            ECDSA_P521: ec.generate_private_key(ec.SECP521R1()),
            RSA: rsa.generate_private_key(65537, 2048),
        }
        for kind, name in EVERY:
            good = sign(PRIVATE[kind], name, DATA)
            self.assertFalse(verify(name, KEYS[kind].blob, good, DATA + b"!"))
            self.assertFalse(verify(name, KEYS[kind].blob, sign(others[kind], name, DATA), DATA))
            for other_kind, other in EVERY:
                if other != name:
                    wrong = sign(PRIVATE[other_kind], other, DATA)
                    self.assertFalse(verify(name, KEYS[kind].blob, wrong, DATA), (name, other))

    def test_sha1(self) -> None:
        """RSA with SHA-1 is not taken, neither as what it is nor under another name."""
        signature = Key(PRIVATE[RSA]).sign(DATA, signatureType=RSA)
        self.assertRaises(Malformed, verify, RSA, KEYS[RSA].blob, signature, DATA)
        renamed = NS(RSA_SHA2_256) + signature[len(NS(RSA)) :]
        self.assertFalse(verify(RSA_SHA2_256, KEYS[RSA].blob, renamed, DATA))

    def test_short_rsa(self) -> None:
        """A signature whose leading zeros were left out is verified (RFC 8332 section 3)."""
        count = 0
        for each in range(5000):
            data = b"%d" % each
            raw = sign(PRIVATE[RSA], RSA_SHA2_512, data)[len(NS(RSA_SHA2_512)) + 4 :]
            if not raw[0]:
                count += 1
                short = NS(RSA_SHA2_512) + NS(raw.lstrip(b"\0"))
                self.assertTrue(verify(RSA_SHA2_512, KEYS[RSA].blob, short, data))
                break
        self.assertEqual(count, 1)


class MalformedTests(SynchronousTestCase):
    """Data that is not a key or a signature raises Malformed."""

    def test_key_of_another_type(self) -> None:
        """A key is accepted only as its own type."""
        for kind, name in EVERY:
            for other, key in KEYS.items():
                if other != kind:
                    signature = sign(PRIVATE[kind], name, DATA)
                    self.assertRaises(Malformed, verify, name, key.blob, signature, DATA)

    def test_cut(self) -> None:
        """Keys and signatures that are cut or have something behind them."""
        for kind, name in EVERY:
            blob, signature = KEYS[kind].blob, sign(PRIVATE[kind], name, DATA)
            for key in (b"", blob[:-1], blob + b"x"):
                self.assertRaises(Malformed, verify, name, key, signature, DATA)
            for bad in (b"", signature[:-1], signature + b"x"):
                self.assertRaises(Malformed, verify, name, blob, bad, DATA)

    def test_ecdsa_numbers(self) -> None:
        """Halves of a signature that are negative, zero or far too long, and an invalid point."""
        blob = P256.blob()
        for numbers in (
            b"",
            MP(1),
            MP(0) + MP(1),
            MP(1) + MP(0),
            NS(b"\xff") + MP(1),
            MP(1 << 300) + MP(1),
            MP(1) + MP(1) + b"x",
        ):
            self.assertRaises(Malformed, verify, ECDSA_P256, blob, NS(ECDSA_P256) + NS(numbers), DATA)
        nowhere = blob[:-32] + bytes(32)
        self.assertRaises(Malformed, verify, ECDSA_P256, nowhere, P256.sign(DATA), DATA)

    def test_rsa_numbers(self) -> None:
        """A small modulus, an invalid exponent, and numbers that would take for ever."""
        small = Key(rsa.generate_private_key(65537, 1024)).blob()
        signature = sign(PRIVATE[RSA], RSA_SHA2_512, DATA)
        modulus = KEYS[RSA].blob[len(NS(RSA) + MP(65537)) :]
        even = NS(RSA) + MP(2) + modulus
        huge = NS(RSA) + MP(1 << 70) + modulus
        long = NS(RSA) + MP(65537) + MP(1 << 20000)
        for key in (small, even, huge, long):
            self.assertRaises(Malformed, verify, RSA_SHA2_512, key, signature, DATA)
        error = self.assertRaises(Malformed, verify, RSA_SHA2_512, small, signature, DATA)
        self.assertIn("1024 bits", str(error))

    def test_type(self) -> None:
        """The type of a key is its first field."""
        self.assertEqual([key_type(key.blob) for key in KEYS.values()], list(KEYS))
        self.assertRaises(Malformed, key_type, b"\0\0\0\7ssh")
