"""Tests of `tower.nodes.ssh.client_key`."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from twisted.conch.ssh.keys import FingerprintFormats, Key
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_keys import KEYS, PRIVATE
from tower.conch.transport.keys import ED25519
from tower.conch.transport.signatures import ECDSA_P256, RSA, RSA_SHA2_256, RSA_SHA2_512, verify
from tower.errors import ConfigurationError
from tower.nodes.ssh.client_key import ClientKey, KeyUnusable

FORMS = (PrivateFormat.OpenSSH, PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL)


class ParseTests(SynchronousTestCase):
    """Every form that a key file has."""

    def test_forms(self) -> None:
        """OpenSSH's format, PKCS#8, and PKCS#1 or SEC 1 give the same key; its signatures are valid."""
        for kind, private in PRIVATE.items():
            for form in FORMS:
                if kind == ED25519 and form == PrivateFormat.TraditionalOpenSSL:
                    continue  # there is none
                key = ClientKey.parse(b"\n" + private.private_bytes(Encoding.PEM, form, NoEncryption()))
                self.assertEqual((key.kind, key.blob), (kind, KEYS[kind].blob))
                for algorithm in key.algorithms:
                    self.assertTrue(verify(algorithm, key.blob, key.sign(algorithm, b"data"), b"data"))

    def test_algorithms(self) -> None:
        """RSA keys sign with SHA-512 rather than SHA-256, never with SHA-1; all others have one way."""
        self.assertEqual(KEYS[RSA].algorithms, (RSA_SHA2_512, RSA_SHA2_256))
        self.assertEqual(KEYS[ED25519].algorithms, (ED25519,))
        self.assertEqual(KEYS[ECDSA_P256].algorithms, (ECDSA_P256,))

    def test_authorized_key(self) -> None:
        """The line is type, base64 and an end of line, without a comment: as Conch and upstream write it."""
        for kind, key in KEYS.items():
            self.assertEqual(key.authorized_key, kind + b" " + b64encode(key.blob) + b"\n")
            line = Key(PRIVATE[kind]).public().toString("openssh")
            self.assertEqual(key.authorized_key.strip(), line)

    def test_fingerprint(self) -> None:
        """The fingerprint is OpenSSH's, and the repr shows nothing else."""
        for kind, key in KEYS.items():
            conch = Key(PRIVATE[kind]).fingerprint(FingerprintFormats.SHA256_BASE64)
            self.assertEqual(key.fingerprint.removeprefix("SHA256:"), conch.rstrip("="))
            self.assertEqual(repr(key), f"<ClientKey {kind.decode()} {key.fingerprint}>")


class RefusedTests(SynchronousTestCase):
    """Unusable keys."""

    def refused(self, text: bytes) -> str:
        """Return why."""
        return str(self.assertRaises(ValueError, ClientKey.parse, text))

    def test_passphrase(self) -> None:
        """A key with a passphrase is refused, in every form, with the cure."""
        for form in FORMS:
            text = PRIVATE[RSA].private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret"))
            self.assertIn("passphrase", self.refused(text))
            self.assertIn("ssh-keygen -p", self.refused(text))

    def test_kinds(self) -> None:
        """Curves that SSH does not have, keys that cannot sign, and RSA keys that are too small."""
        for private, word in (
            (ec.generate_private_key(ec.SECP256K1()), "secp256k1"),
            (x25519.X25519PrivateKey.generate(), "ed25519, ECDSA or RSA"),
            (rsa.generate_private_key(65537, 1024), "1024 bits"),
        ):
            text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            self.assertIn(word, self.refused(text))

    def test_no_key(self) -> None:
        """Other text, a public key, a damaged key and an endless file are rejected; nothing is quoted."""
        good = ed25519.Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
        )
        for text in (b"", b"hello", KEYS[RSA].authorized_key, good[:200] + good[230:], b"x" * 70_000):
            said = self.refused(text)
            self.assertTrue("private key" in said or "too large" in said, said)
            self.assertNotIn("hello", said)


class LoadTests(SynchronousTestCase):
    """From a file."""

    def setUp(self) -> None:
        """Write a key."""
        self.path = Path(self.mktemp())
        self.path.touch(0o600)
        self.path.write_bytes(
            PRIVATE[RSA].private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )

    def test_load(self) -> None:
        """The key is read, from a path of either type."""
        for path in (self.path, str(self.path)):
            self.assertEqual(ClientKey.load(path).blob, KEYS[RSA].blob)

    def test_unreadable(self) -> None:
        """A file that is not there is reported in upstream's words, as a matter of configuration."""
        error = self.assertRaises(KeyUnusable, ClientKey.load, "/nonexistent/key")
        self.assertEqual(
            str(error),
            "error reading SSH key /nonexistent/key: 'open /nonexistent/key: no such file or directory'",
        )
        self.assertIsInstance(error, ConfigurationError)

    def test_unusable(self) -> None:
        """So is one that holds no key."""
        self.path.write_text("nothing")
        error = self.assertRaises(KeyUnusable, ClientKey.load, self.path)
        self.assertEqual(
            str(error),
            f"error parsing SSH key: '{self.path}: it is not a private key in PEM or OpenSSH's format'",
        )
