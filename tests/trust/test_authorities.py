"""Tests of `tower.trust.authorities`."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import (
    DAY,
    NOW,
    PUBLISHED,
    authority,
    below,
    common_name,
    pair,
    rsa_authority,
    signed,
)
from tower.errors import ConfigurationError
from tower.trust.authorities import given_authority, own_authority
from tower.trust.pki import Authority, pem_of_key
from tower.trust.statedir import StateDir


class OwnAuthorityTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with an empty directory."""
        self.files = StateDir(self.mktemp())

    def test_born_once(self) -> None:
        """An authority is born when there is none, kept as a private file, and the same ever after."""
        born = own_authority(self.files, "users-ca", NOW)
        again = own_authority(self.files, "users-ca", NOW + 365 * DAY)
        self.assertEqual(born.pem, again.pem)
        mode = (self.files.path / "users-ca.pem").stat().st_mode
        self.assertEqual(mode & 0o777, 0o600)

    def test_two_are_two(self) -> None:
        """The one for users and the one for serving have different keys and different names."""
        users, serving = (own_authority(self.files, name, NOW) for name in ("users-ca", "serving-ca"))
        self.assertNotEqual(users.hash, serving.hash)
        self.assertNotEqual(users.certificate.subject, serving.certificate.subject)

    def test_damaged(self) -> None:
        """The error for a damaged file is one line that names the file and the effect of removing it."""
        own_authority(self.files, "users-ca", NOW)
        path = self.files.path / "users-ca.pem"
        whole = path.read_bytes()
        for data in (b"", whole[:100], whole[: whole.index(b"-----BEGIN CERT")], b"\0" * 4096):
            path.write_bytes(data)
            error = str(self.assertRaises(ConfigurationError, own_authority, self.files, "users-ca", NOW))
            self.assertIn(str(path), error)
            self.assertIn("without this file", error)
            self.assertNotIn("\n", error)

    def test_ended(self) -> None:
        """An authority that has ended is not used."""
        own_authority(self.files, "users-ca", NOW)
        later = NOW + 4000 * DAY
        error = self.assertRaises(ConfigurationError, own_authority, self.files, "users-ca", later)
        self.assertIn("expired on", str(error))


class GivenAuthorityTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with an empty directory."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def given(self, of: Authority, now: float = NOW) -> Authority:
        """Write an authority to two files and load it from there."""
        return given_authority(*pair(self.folder, of), now)

    def refusal(self, certificate: bytes, key: bytes, now: float = NOW) -> str:
        """Return the text with which certificate and key are refused."""
        paths = self.folder / "c", self.folder / "k"
        for path, data in zip(paths, (certificate, key), strict=True):
            path.write_bytes(data)
        error = str(self.assertRaises(ConfigurationError, given_authority, *paths, now))
        self.assertNotIn("\n", error)
        self.assertTrue(str(self.folder) in error and error.startswith("--ca-"), error)
        return error

    def test_kinds(self) -> None:
        """RSA and elliptic curve keys work, and an intermediate CA with its issuers."""
        for each in (authority(), rsa_authority(), below(rsa_authority())):
            loaded = self.given(each)
            self.assertEqual(loaded.pem, each.pem)
            issued = loaded.server_certificate(["a"], DAY, NOW)
            self.assertGreater(issued.not_after, NOW)

    def test_missing(self) -> None:
        """A file that is not there is named with its option."""
        certificate, key = pair(self.folder, authority())
        key.unlink()
        error = self.assertRaises(ConfigurationError, given_authority, certificate, key, NOW)
        self.assertEqual(str(error), f"--ca-key {key}: No such file or directory")
        certificate.unlink()
        error = self.assertRaises(ConfigurationError, given_authority, certificate, key, NOW)
        self.assertIn("--ca-cert", str(error))

    def test_huge(self) -> None:
        """A file that is not PEM is not read to its end."""
        self.assertIn("larger than", self.refusal(b"x" * ((1 << 20) + 1), b""))

    def test_not_pem(self) -> None:
        """Neither file may hold something else."""
        good = authority()
        self.assertIn("no certificate", self.refusal(b"hello", pem_of_key(good.key)))
        self.assertIn("no private key", self.refusal(good.pem, good.pem))

    def test_wrong_key(self) -> None:
        """A key of another certificate is found out at once."""
        self.assertIn("not the key of", self.refusal(authority().pem, pem_of_key(authority().key)))

    def test_not_an_authority(self) -> None:
        """A server's certificate cannot sign."""
        key = rsa_authority().key
        for ca in (None, False):
            leaf = signed("leaf", key, common_name("leaf"), key, ca=ca)
            self.assertIn(
                "not a CA certificate", self.refusal(leaf.public_bytes(Encoding.PEM), pem_of_key(key))
            )

    def test_dates(self) -> None:
        """The error for an expired, or not yet valid, CA has the date."""
        short = authority(lifetime=DAY)
        self.assertIn("expired on 2023-11-15", self.refusal(short.pem, pem_of_key(short.key), NOW + 2 * DAY))
        self.assertIn("clock", self.refusal(short.pem, pem_of_key(short.key), NOW - 2 * DAY))

    def test_encrypted_key(self) -> None:
        """An encrypted key is rejected, with the cure."""
        good = authority()
        key = good.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        self.assertIn("passphrase", self.refusal(good.pem, key))

    def test_other_keys(self) -> None:
        """Keys that are weak or that clients do not know are refused."""
        good = authority()
        ed = ed25519.Ed25519PrivateKey.generate()
        pem = ed.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.assertIn("unsupported key", self.refusal(good.pem, pem))
        weak = rsa_authority(1024)
        self.assertIn("unsupported key", self.refusal(weak.pem, pem_of_key(weak.key)))

    def test_published_authority(self) -> None:
        """Hole 2: the authority whose private key KubeSphere Tower publishes is refused, even re-issued."""
        error = self.refusal(PUBLISHED.encode(), b"")
        self.assertIn("private key of this CA is public", error)

    def test_published_authority_above(self) -> None:
        """Hole 2: it is also rejected as an issuer of another CA."""
        good = authority()
        error = self.refusal(good.pem + PUBLISHED.encode(), pem_of_key(good.key))
        self.assertIn("private key of this CA is public", error)
