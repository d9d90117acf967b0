"""Tests of `tower.net.tls.published_authorities`."""

from __future__ import annotations

import base64
import os
import ssl
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import PUBLISHED, authority, below, common_name, rsa_authority, signed
from tower.errors import ConfigurationError
from tower.net.tls import published_authorities
from tower.net.tls.published_authorities import (
    PUBLISHED_AUTHORITIES,
    is_published,
    refuse_published,
    refuse_published_in_system,
    trust_system,
)
from tower.trust.pki import public_key_hash

GOOD = authority("good").pem


class RefusePublishedTests(SynchronousTestCase):
    """An authority of the test's own whose key counts as published."""

    def setUp(self) -> None:
        """Publish the key of one authority."""
        self.leaked = rsa_authority()
        self.patch(
            published_authorities,
            "PUBLISHED_AUTHORITIES",
            PUBLISHED_AUTHORITIES | {public_key_hash(self.leaked.certificate)},
        )

    def refusal(self, pem: bytes) -> str:
        """Return the text with which certificates are refused."""
        error = self.assertRaises(ConfigurationError, refuse_published, "--ca-cert a.crt", pem, "replace it")
        return str(error)

    def test_the_three(self) -> None:
        """The hashes of the three authorities that KubeSphere Tower published are known."""
        for digest in (
            "3b532e22309c842ac1af52cdda09dea7029744afc2b71c4a4b5a3eb023ef1500",
            "5385d3f00da5682f10a92ce6463e35c2de76282e1adf9e2c9f080eff83957267",
            "b06348278b7dcb17d4c00172e46ea37af0b2580e4e7297ed1b4735f135dbb5e9",
        ):
            self.assertTrue(is_published(digest))
            self.assertTrue(is_published(f"sha256:{digest}"))
            self.assertIn(digest, PUBLISHED_AUTHORITIES)
        self.assertFalse(is_published("0" * 64))

    def test_text(self) -> None:
        """The error has the source, the reason and the cure."""
        self.assertEqual(
            self.refusal(PUBLISHED.encode()),
            "--ca-cert a.crt: the private key of this CA is public (KubeSphere Tower ships it), "
            "so anyone can sign with it: replace it",
        )

    def test_anywhere(self) -> None:
        """It is found before, between and behind others, and above an intermediate authority."""
        bad = self.leaked.pem
        for pem in (bad, bad + GOOD, GOOD + bad, GOOD + bad + GOOD, below(self.leaked).pem):
            self.assertIn("is public", self.refusal(b"words before it\n" + pem))
        refuse_published("", GOOD + b"".join(authority().pem for _ in range(3)), "")

    def test_another_certificate(self) -> None:
        """Another certificate of the same key is refused, authority or not."""
        key, issuer = self.leaked.key, authority("issuer")
        for ca in (True, False, None):
            again = signed("again", key, common_name("issuer"), issuer.key, ca=ca)
            self.assertIn("is public", self.refusal(again.public_bytes(Encoding.PEM)))

    def test_labels(self) -> None:
        """Every label that OpenSSL reads as a certificate is looked into."""
        pem = self.leaked.pem
        der = self.leaked.certificate.public_bytes(Encoding.DER)
        trusted = base64.encodebytes(der + b"\x30\x00")  # its uses may follow
        for form in (
            pem.replace(b"CERTIFICATE", b"X509 CERTIFICATE"),
            b"-----BEGIN TRUSTED CERTIFICATE-----\n%b-----END TRUSTED CERTIFICATE-----\n" % trusted,
            pem.replace(b"\n", b"\r\n"),
        ):
            self.assertIn("is public", self.refusal(form))

    def test_no_certificates(self) -> None:
        """Invalid certificates are left to the code that loads them."""
        der = self.leaked.certificate.public_bytes(Encoding.DER)
        for size in (0, 1, 2, 3, 5, 10, 100, len(der) // 2, len(der) - 1):
            text = base64.encodebytes(der[:size])
            refuse_published("", b"-----BEGIN CERTIFICATE-----\n%b-----END CERTIFICATE-----\n" % text, "")
        for pem in (b"", b"hello", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"):
            refuse_published("", pem, "")

    def test_key_hash(self) -> None:
        """The hash is the one of the SubjectPublicKeyInfo, whatever the certificate's version and key."""
        for each in (authority(), rsa_authority(), below(rsa_authority())):
            hashes = list(published_authorities._key_hashes(each.pem))
            self.assertEqual(hashes, [public_key_hash(one) for one in each.certificates])


class SystemTests(SynchronousTestCase):
    """The system's authorities, as the environment names them."""

    def setUp(self) -> None:
        """Begin with an empty directory."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        (self.folder / "good.pem").write_bytes(GOOD)
        published_authorities._first_published.cache_clear()
        self.addCleanup(published_authorities._first_published.cache_clear)

    def environment(self, **names: Path) -> None:
        """Set these variables."""
        changed = patch.dict(os.environ, {name: str(path) for name, path in names.items()})
        changed.start()
        self.addCleanup(changed.stop)

    def test_file(self) -> None:
        """A published authority in SSL_CERT_FILE is refused, with the file's name."""
        file = self.folder / "bundle.pem"
        file.write_bytes(GOOD + PUBLISHED.encode())
        self.environment(SSL_CERT_FILE=file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        error = self.assertRaises(ConfigurationError, trust_system, context)
        self.assertIn(str(file), str(error))
        self.assertEqual(context.get_ca_certs(), [])

    def test_directory(self) -> None:
        """A published CA in SSL_CERT_DIR is rejected; unreadable files are skipped."""
        (self.folder / "a-directory").mkdir()
        os.mkfifo(self.folder / "a-pipe")
        self.environment(SSL_CERT_FILE=self.folder / "good.pem", SSL_CERT_DIR=self.folder)
        refuse_published_in_system()
        published_authorities._first_published.cache_clear()
        (self.folder / "0a1b2c3d.0").write_text(PUBLISHED)
        error = self.assertRaises(ConfigurationError, refuse_published_in_system)
        self.assertIn(str(self.folder / "0a1b2c3d.0"), str(error))

    def test_good(self) -> None:
        """Other authorities are trusted as before."""
        self.environment(SSL_CERT_FILE=self.folder / "good.pem", SSL_CERT_DIR=self.folder / "none")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust_system(context)
        self.assertEqual(len(context.get_ca_certs()), 1)
