"""Tests of `tower.trust.pki`."""

from __future__ import annotations

import hashlib
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW, authority, below, der, rsa_authority
from tower.errors import ConfigurationError, Invalid
from tower.trust.pki import CLOCK_SKEW, audience, ca_hash, general_names


class ClientCertificateTests(SynchronousTestCase):
    def test_says_who_and_where(self) -> None:
        """The certificate names the user, every group in order, and the one cluster it is for."""
        issued = authority().client_certificate("jane", ["dev", "qa"], "alpha", "u-1", 3600, NOW)
        certificate = x509.load_pem_x509_certificate(issued.certificate_pem)
        names = [(name.oid, name.value) for name in certificate.subject]
        self.assertEqual(
            names,
            [
                (NameOID.COMMON_NAME, "jane"),
                (NameOID.ORGANIZATION_NAME, "dev"),
                (NameOID.ORGANIZATION_NAME, "qa"),
            ],
        )
        uris = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.assertEqual(
            uris.get_values_for_type(x509.UniformResourceIdentifier), ["tower:cluster:alpha:u-1"]
        )
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self.assertEqual(list(usages), [ExtendedKeyUsageOID.CLIENT_AUTH])

    def test_digest_is_of_der(self) -> None:
        """The digest is that of the certificate in a TLS session."""
        issued = authority().client_certificate("jane", [], "alpha", "u-1", 3600, NOW)
        self.assertEqual(issued.digest, hashlib.sha256(der(issued)).hexdigest())

    def test_lifetime(self) -> None:
        """It begins a little earlier, for clocks that are behind, and ends after its time to live."""
        issued = authority().client_certificate("jane", [], "alpha", "u-1", 3600, NOW)
        certificate = x509.load_pem_x509_certificate(issued.certificate_pem)
        self.assertEqual(certificate.not_valid_before_utc.timestamp(), NOW - CLOCK_SKEW)
        self.assertEqual(certificate.not_valid_after_utc.timestamp(), NOW + 3600)
        self.assertEqual(issued.not_after, NOW + 3600)

    def test_own_key(self) -> None:
        """Each certificate has a new P-256 key, which its repr does not show."""
        one, two = (authority().client_certificate("jane", [], "alpha", "u-1", 60, NOW) for _ in range(2))
        key = load_pem_private_key(one.key_pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.assertIsInstance(key.curve, ec.SECP256R1)
        self.assertEqual(x509.load_pem_x509_certificate(one.certificate_pem).public_key(), key.public_key())
        self.assertNotEqual(one.key_pem, two.key_pem)
        self.assertNotIn("PRIVATE", repr(one))

    def test_names_that_do_not_fit(self) -> None:
        """An empty, too long or unprintable name is rejected, with the cure."""
        for name in ("", "x" * 65, "jane\n", "a\0b"):
            with self.subTest(name=name):
                error = self.assertRaises(
                    Invalid, authority().client_certificate, name, [], "alpha", "u", 60, NOW
                )
                self.assertIn("--auth token", str(error))
        self.assertRaises(Invalid, authority().client_certificate, "jane", ["ok", ""], "alpha", "u", 60, NOW)

    def test_names_that_do(self) -> None:
        """64 characters fit; commas and letters of any script are unchanged."""
        for name in ("x" * 64, "jane, of dev+ops=1", "Jörg 张"):
            issued = authority().client_certificate(name, [], "alpha", "u", 60, NOW)
            subject = x509.load_pem_x509_certificate(issued.certificate_pem).subject
            self.assertEqual([entry.value for entry in subject], [name])

    def test_audience_of_the_api(self) -> None:
        """Without a cluster it is for Tower's own API."""
        self.assertEqual(audience("", ""), "tower:api")


class ServerCertificateTests(SynchronousTestCase):
    def test_addresses_and_names(self) -> None:
        """IP addresses become IP names, host names DNS names, each once; IPv6 brackets are taken off."""
        wanted = [
            "Tower.example.COM.",
            "10.0.0.1",
            "[::1]",
            "::1",
            "tower.example.com",
            "xn--bcher-kva.example",
        ]
        self.assertEqual(
            general_names(wanted),
            [
                x509.DNSName("tower.example.com"),
                x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
                x509.IPAddress(ipaddress.ip_address("::1")),
                x509.DNSName("xn--bcher-kva.example"),
            ],
        )

    def test_international_name(self) -> None:
        """A name in another script is carried as its IDNA form."""
        self.assertEqual(general_names(["bücher.example"]), [x509.DNSName("xn--bcher-kva.example")])

    def test_impossible_names(self) -> None:
        """A name that does not fit a certificate is a configuration error with the value (hole 8)."""
        for name in (
            "",
            "a b",
            "host:8443",
            "-x.example",
            "a..b",
            "x" * 64 + ".example",
            "a." * 130 + "b",
            "*",
        ):
            with self.subTest(name=name):
                self.assertIn(repr(name), str(self.assertRaises(ConfigurationError, general_names, [name])))

    def test_ends_with_its_authority(self) -> None:
        """No certificate outlives the authority that signed it (hole 20)."""
        short = authority(lifetime=10 * DAY)
        self.assertEqual(short.server_certificate(["a"], 90 * DAY, NOW).not_after, NOW + 10 * DAY)

    def test_knows_its_own(self) -> None:
        """A CA recognizes its certificates, also among those of a CA of the same name."""
        mine, other = authority(), authority()
        certificate = x509.load_pem_x509_certificate(mine.server_certificate(["a"], DAY, NOW).certificate_pem)
        self.assertTrue(mine.issued(certificate))
        self.assertFalse(other.issued(certificate))
        self.assertFalse(rsa_authority().issued(certificate))


class AuthorityTests(SynchronousTestCase):
    def test_hash_is_kubeadms(self) -> None:
        """The hash is sha256: and the hex of the SubjectPublicKeyInfo's SHA-256, for EC and RSA alike."""
        for each in (authority(), rsa_authority()):
            spki = each.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            self.assertEqual(each.hash, "sha256:" + hashlib.sha256(spki).hexdigest())
            self.assertEqual(ca_hash(each.pem), each.hash)

    def test_hash_of_several(self) -> None:
        """With several certificates, the hash is that of the first."""
        chain = below(authority())
        self.assertEqual(len(chain.certificates), 2)
        self.assertEqual(ca_hash(chain.pem), chain.hash)

    def test_key_stays_hidden(self) -> None:
        """The repr of an authority does not show its key."""
        self.assertNotIn("key=", repr(authority()))
