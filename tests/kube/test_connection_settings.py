"""Tests for `tower.kube.connection_settings`."""

from __future__ import annotations

import ssl
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import NOW, authority
from tower.errors import ConfigurationError
from tower.kube.connection_settings import bearer_token, server_address, tls_context
from tower.kube.kubeconfig import KubeAccess

SERVER = "https://tower.example.org:8443"


class AccessTests(SynchronousTestCase):
    """Connection settings of a kubeconfig."""

    def test_token(self) -> None:
        """A token file takes precedence over the token, is read each time, and is named in errors."""
        path = Path(self.mktemp())
        access = KubeAccess(SERVER, token="inline", token_file=path)
        self.assertIn(str(path), str(self.assertRaises(ConfigurationError, bearer_token, access)))
        path.write_text("one\n")
        self.assertEqual(bearer_token(access), "one")
        path.write_text("two\n")
        self.assertEqual(bearer_token(access), "two")
        self.assertEqual(bearer_token(KubeAccess(SERVER, token="inline")), "inline")

    def test_address(self) -> None:
        """Host, port and TLS of a server's URL."""
        for server, expected in (
            (SERVER, ("tower.example.org", 8443, True)),
            ("https://[fd00::1]", ("fd00::1", 443, True)),
            ("http://h", ("h", 80, False)),
        ):
            self.assertEqual(server_address(KubeAccess(server)), expected)

    def test_certificate(self) -> None:
        """A client certificate comes from memory; a broken one is an error of one line."""
        one = authority()
        issued = one.client_certificate("root", [], "", "", 3600, NOW)
        context = tls_context(KubeAccess(SERVER, one.pem, issued.certificate_pem, issued.key_pem))
        self.assertEqual(len(context.get_ca_certs()), 1)
        self.assertTrue(context.check_hostname)
        broken = KubeAccess(SERVER, one.pem, issued.certificate_pem, b"-----BEGIN PRIVATE KEY-----\n")
        self.assertIn("invalid", str(self.assertRaises(ConfigurationError, tls_context, broken)))
        self.assertIn(
            "invalid", str(self.assertRaises(ConfigurationError, tls_context, KubeAccess(SERVER, b"\xff")))
        )

    def test_insecure(self) -> None:
        """Verification is disabled only by an explicit field."""
        self.assertEqual(tls_context(KubeAccess(SERVER)).verify_mode, ssl.CERT_REQUIRED)
        self.assertEqual(tls_context(KubeAccess(SERVER, insecure=True)).verify_mode, ssl.CERT_NONE)
