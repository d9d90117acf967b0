"""Tests of tower.conch.transport.keys."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.conch.ssh.common import NS
from twisted.conch.ssh.keys import Key
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.fields import Malformed
from tower.conch.transport.keys import KeyPair, checked_fingerprint, fingerprint, load_or_create, verify
from tower.errors import ConfigurationError

# Made by ssh-keygen -t ed25519; the fingerprint is what ssh-keygen -l prints for it.
OPENSSH = b"""-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACAVExN8UrHp0uWmRkVuuFsvk66SWiICX2T0iHCW3uKgcQAAAIgCoM9WAqDP
VgAAAAtzc2gtZWQyNTUxOQAAACAVExN8UrHp0uWmRkVuuFsvk66SWiICX2T0iHCW3uKgcQ
AAAEDtAs/o50qv+up8ZCfoJBaMOpCPUKcYl+dHA5R2Y9P7ohUTE3xSsenS5aZGRW64Wy+T
rpJaIgJfZPSIcJbe4qBxAAAAAAECAwQF
-----END OPENSSH PRIVATE KEY-----
"""
PRINTED = "SHA256:Yi0SIL1CC92tpA55jX4iHoMATp3QyEGCZ6wIMf2uXmY"


class MemoryFolder:
    """A folder in memory."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}

    def read(self, name: str) -> bytes | None:
        """See Folder."""
        return self.files[name][0] if name in self.files else None

    def write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """See Folder."""
        self.files[name] = data, mode


class KeyPairTests(SynchronousTestCase):
    """KeyPair and verify."""

    def test_openssh_file(self) -> None:
        """A key that ssh-keygen made is read, and named as ssh-keygen names it."""
        self.assertEqual(KeyPair.from_openssh(OPENSSH).fingerprint, PRINTED)

    def test_round_trip(self) -> None:
        """A key written and read again is the same key."""
        key = KeyPair.generate()
        self.assertEqual(KeyPair.from_openssh(key.to_openssh()).blob, key.blob)

    def test_conch_agrees(self) -> None:
        """Conch sees the same public key, and its signatures are ours."""
        key = KeyPair.generate()
        conch: Key = Key.fromString(key.blob)
        self.assertEqual(key.conch_key.blob(), key.blob)
        self.assertTrue(conch.verify(key.sign(b"data"), b"data"))
        self.assertTrue(verify(key.blob, key.conch_key.sign(b"data"), b"data"))

    def test_as_conch(self) -> None:
        """Blob and signature are what Conch's own key makes of the same key (ed25519 is deterministic)."""
        key = KeyPair.generate()
        conch = Key.fromString(key.to_openssh())
        self.assertEqual(key.conch_key.blob(), conch.public().blob())
        self.assertEqual(key.conch_key.sign(b"data", b"ssh-ed25519"), conch.sign(b"data"))

    def test_wrong_signatures(self) -> None:
        """Another key's, another text's and another kind of signature do not verify."""
        key, other = KeyPair.generate(), KeyPair.generate()
        self.assertFalse(verify(key.blob, other.sign(b"data"), b"data"))
        self.assertFalse(verify(key.blob, key.sign(b"data"), b"date"))
        self.assertFalse(verify(key.blob, NS(b"ssh-rsa") + NS(b"x" * 64), b"data"))
        self.assertFalse(verify(key.blob, NS(b"ssh-ed25519") + NS(b"x" * 63), b"data"))

    def test_other_kinds_of_keys(self) -> None:
        """A public key that is not ed25519, or not quite, is malformed."""
        rsa = NS(b"ssh-rsa") + NS(b"\1\0\1") + NS(b"\0" * 32)
        for blob in (rsa, NS(b"ssh-ed25519") + NS(b"x" * 31), KeyPair.generate().blob + b"x", b""):
            with self.assertRaises(Malformed):
                verify(blob, NS(b"ssh-ed25519") + NS(b"x" * 64), b"data")

    def test_nothing_secret_shows(self) -> None:
        """The repr of a key is its fingerprint."""
        key = KeyPair.generate()
        self.assertEqual(repr(key), f"<KeyPair {key.fingerprint}>")


class LoadOrCreateTests(SynchronousTestCase):
    """load_or_create."""

    def test_made_once(self) -> None:
        """The key is made, kept for its owner alone, and is the same the next time."""
        folder = MemoryFolder()
        first = load_or_create(folder, "host-key")
        self.assertEqual(load_or_create(folder, "host-key").blob, first.blob)
        self.assertEqual(folder.files["host-key"][1], 0o600)

    def test_damaged(self) -> None:
        """A file that holds something else is named, with the cure, and not overwritten."""
        curve = ec.generate_private_key(ec.SECP256R1())
        other = curve.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        for content in (b"", b"rubbish", OPENSSH[:100], other):
            folder = MemoryFolder()
            folder.write("host-key", content)
            with self.assertRaisesRegex(ConfigurationError, "host-key is damaged.*delete it"):
                load_or_create(folder, "host-key")
            self.assertEqual(folder.read("host-key"), content)


class FingerprintTests(SynchronousTestCase):
    """fingerprint and checked_fingerprint."""

    def test_good(self) -> None:
        """checked_fingerprint accepts the results of fingerprint."""
        text = fingerprint(b"blob")
        self.assertEqual(checked_fingerprint(text), text)

    def test_bad(self) -> None:
        """Anything else is an error that shows what it should look like."""
        good = fingerprint(b"blob")
        for text in (
            "",
            good[7:],
            good + "=",
            good[:-1],
            "MD5:" + good,
            good.replace("SHA", "sha"),
            good + "\n",
        ):
            with self.assertRaisesRegex(ConfigurationError, "SHA256: and 43 characters"):
                checked_fingerprint(text)
