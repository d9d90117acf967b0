"""Tests of `tower.v1.ecdsa`."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec
from twisted.conch.ssh.common import MP, NS
from twisted.conch.ssh.keys import Key
from twisted.trial.unittest import SynchronousTestCase

from tests.conch.pairs import HOST_KEY
from tower.conch.fields import Malformed
from tower.v1.ecdsa import ECDSA_P256, verify_ecdsa

KEY = Key(ec.generate_private_key(ec.SECP256R1()))
DATA = b"what is signed"


class VerifyTests(SynchronousTestCase):
    def test_good(self) -> None:
        """What Conch signs is verified."""
        for _ in range(20):  # halves of a signature differ in length
            self.assertTrue(verify_ecdsa(KEY.blob(), KEY.sign(DATA), DATA))

    def test_bad(self) -> None:
        """Other data, another key and another kind of signature are not."""
        other = Key(ec.generate_private_key(ec.SECP256R1()))
        self.assertFalse(verify_ecdsa(KEY.blob(), KEY.sign(DATA), DATA + b"!"))
        self.assertFalse(verify_ecdsa(other.blob(), KEY.sign(DATA), DATA))
        self.assertFalse(verify_ecdsa(KEY.blob(), HOST_KEY.sign(DATA), DATA))

    def test_malformed(self) -> None:
        """What is neither key nor signature says so."""
        blob, signature = KEY.blob(), KEY.sign(DATA)
        p384 = Key(ec.generate_private_key(ec.SECP384R1()))
        for key in (b"", blob[:-1], blob + b"x", HOST_KEY.blob, p384.blob(), blob[:-32] + bytes(32)):
            self.assertRaises(Malformed, verify_ecdsa, key, signature, DATA)
        for numbers in (
            b"",
            MP(1),
            MP(0) + MP(1),
            MP(1) + MP(0),
            NS(b"\xff") + MP(1),
            MP(1 << 300) + MP(1),
            MP(1) + MP(1) + b"x",
        ):
            self.assertRaises(Malformed, verify_ecdsa, blob, NS(ECDSA_P256) + NS(numbers), DATA)
        self.assertRaises(Malformed, verify_ecdsa, blob, signature + b"x", DATA)
