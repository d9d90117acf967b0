"""Tests of `tower.kube.member_failures`: real TLS failures; the others are in `test_member_check`."""

from __future__ import annotations

import ssl

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import Pair, family, issue, pem, server_context
from tower.kube.apiserver import client_context
from tower.kube.client import APIError
from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_cures import agent_texts, is_about_dates
from tower.kube.member_failures import unreached
from tower.net.connecting import ConnectFailed
from tower.net.tls.connection import reason_of
from tower.net.tls.session import TLSSession

DAY = 86_400.0


class TLSFailureTests(SynchronousTestCase):
    def reason(self, leaf: Pair, *, name: str = "tower.example", trusted: Pair | None = None) -> str:
        """Return the reason of the check of an API server with that certificate."""
        root = family()[0] if trusted is None else trusted
        context = client_context(KubeAccess("https://tower.example", ca_data=pem(root[0])))
        client = TLSSession(context, server_side=False, server_hostname=name)
        server = TLSSession(server_context(leaf, family()[1][0]), server_side=True, server_hostname=None)
        try:
            for _ in range(3):
                client.handshake()
                server.feed(memoryview(client.take()))
                server.handshake()
                client.feed(memoryview(server.take()))
        except ssl.SSLError as e:
            text = f"api:6443: {reason_of(e)}"
            error = APIError("GET", "/version", 0, text, ConnectFailed("tls", text))
            check = unreached(error, "api:6443", agent_texts("/etc/k", KubeAccess("https://api:6443")))
            self.assertEqual(check.status, "False")
            self.dated = is_about_dates(check)
            return check.reason
        return ""

    def test_reasons(self) -> None:
        """OpenSSL's texts for the usual mistakes are recognized."""
        middle = family()[1]
        good = issue("tower.example", middle)
        self.assertEqual(self.reason(good), "")
        self.assertEqual(self.reason(good, name="other.example"), "CertificateWrongName")
        self.assertEqual(self.reason(good, name="127.0.0.2"), "CertificateWrongName")
        self.assertEqual(self.reason(good, trusted=issue("x", authority=True)), "CertificateUntrusted")
        self.assertEqual(self.reason(issue("tower.example")), "CertificateUntrusted")
        self.assertFalse(self.dated)
        self.assertEqual(self.reason(issue("tower.example", middle, begin=-2 * DAY)), "CertificateExpired")
        self.assertEqual(self.reason(issue("tower.example", middle, begin=3600)), "CertificateNotYetValid")
        self.assertTrue(self.dated)
