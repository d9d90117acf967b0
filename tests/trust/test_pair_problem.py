"""Tests of `tower.trust.pair_problem`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW, authority
from tower.trust.pair_problem import pair_problem

_BAD = b"-----BEGIN %s-----\nAAAA\n-----END %s-----\n"


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes = b"") -> bytes:
    """Return a key, perhaps encrypted."""
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


class PairProblemTests(SynchronousTestCase):
    def test_texts(self) -> None:
        """The texts are Go's."""
        issued = authority("a", now=NOW).server_certificate(["a"], DAY, NOW)
        certificate, key = issued.certificate_pem, issued.key_pem
        other, strange = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)
        bad = _BAD % (b"CERTIFICATE", b"CERTIFICATE")
        for first, second, text in (
            (certificate, key, ""),
            (certificate, b"-----BEGIN EC PARAMETERS-----\nAAAA\n-----END EC PARAMETERS-----\n" + key, ""),
            (b"", key, "tls: failed to find any PEM data in certificate input"),
            (key, key, "PEM inputs may have been switched"),
            (key * 2, key, "after skipping PEM blocks of the following types: [PRIVATE KEY PRIVATE KEY]"),
            (certificate, b"hi", "tls: failed to find any PEM data in key input"),
            (certificate, certificate, "tls: found a certificate rather than a key"),
            (certificate, certificate * 2, "types: [CERTIFICATE CERTIFICATE]"),
            (bad, key, "x509: malformed certificate"),
            (certificate, pem(other), "tls: private key does not match public key"),
            (certificate, pem(strange), "tls: private key type does not match public key type"),
            (certificate, pem(other, b"secret"), "tls: failed to parse private key"),
            (certificate, _BAD % (b"EC PRIVATE KEY", b"EC PRIVATE KEY"), "tls: failed to parse private key"),
        ):
            found = pair_problem(first, second)
            self.assertIn(text, found)
            self.assertEqual(bool(found), bool(text), found)

    def test_short_key(self) -> None:
        """A pair that OpenSSL would not use is a problem, too."""
        key = rsa.generate_private_key(65537, 1024)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
        begin = datetime.fromtimestamp(NOW, UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(1))
            .sign(key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )
        self.assertIn("OpenSSL rejects", pair_problem(certificate, pem(key)))
