"""Tests of `tower.net.tls.cipher_suites`."""

from __future__ import annotations

import ssl

from twisted.trial.unittest import SynchronousTestCase

from tower.net.tls.cipher_suites import ServerSettings, read_suites, read_version


def suites(context: ssl.SSLContext) -> set[str]:
    """Return the suites of a context before TLS 1.3."""
    return {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}


class CipherSuitesTests(SynchronousTestCase):
    def test_suites(self) -> None:
        """Every suite that kube-apiserver prefers is one of OpenSSL; those of TLS 1.3 are always on."""
        for name, expected in (
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", {"ECDHE-ECDSA-AES128-GCM-SHA256"}),
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305, TLS_AES_128_GCM_SHA256", {"ECDHE-RSA-CHACHA20-POLY1305"}),
            ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", {"ECDHE-RSA-AES256-SHA"}),
        ):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ServerSettings(suites=read_suites(name)).apply(context)
            self.assertEqual(suites(context), expected)
            self.assertEqual(context.minimum_version, ssl.TLSVersion.TLSv1_2)

    def test_only_1_3(self) -> None:
        """Without a suite for TLS 1.2, that version is off, as in Go."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ServerSettings(suites=read_suites("TLS_AES_256_GCM_SHA384")).apply(context)
        self.assertEqual(context.minimum_version, ssl.TLSVersion.TLSv1_3)

    def test_unknown_suites(self) -> None:
        """Unknown suites are rejected with kube-apiserver's text and the others, insecure ones as such."""
        with self.assertRaises(ValueError) as insecure:
            read_suites("TLS_RSA_WITH_RC4_128_SHA")
        self.assertIn("TLS_RSA_WITH_RC4_128_SHA is insecure: remove it", str(insecure.exception))
        for text in ("FOO", "TLS_AES_128_GCM_SHA256,FOO", ""):
            with self.assertRaises(ValueError) as caught:
                read_suites(text)
            bad = text.rpartition(",")[2]
            self.assertIn(f"Cipher suite {bad} not supported or doesn't exist: give", str(caught.exception))

    def test_versions(self) -> None:
        """TLS 1.2 and 1.3 are supported, earlier versions are not."""
        self.assertEqual(read_version("VersionTLS12"), ssl.TLSVersion.TLSv1_2)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ServerSettings(read_version("VersionTLS13")).apply(context)
        self.assertEqual(context.minimum_version, ssl.TLSVersion.TLSv1_3)
        for text, problem in (
            ("VersionTLS14", 'unknown tls version "VersionTLS14": give'),
            ("VersionTLS10", "is not secure"),
            ("VersionTLS11", "is not secure"),
        ):
            with self.assertRaises(ValueError) as caught:
                read_version(text)
            self.assertIn(problem, str(caught.exception))
