"""Tests for `tower.cli.client`."""

from __future__ import annotations

import http.client
import ssl
from functools import partial
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.cli.client import CallFailed, CommandFailed, TowerClient, open_connection, quoted
from tower.kube.kubeconfig import KubeAccess

SERVER = "https://tower.example.org:8443"


class Broken:
    """A connection that raises *error*."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.closed = False

    def request(self, *_: Any) -> None:
        """Fail."""
        raise self._error

    def close(self) -> None:
        """Record the call."""
        self.closed = True


def _same(connection: Any) -> Any:
    return connection


class CallTests(SynchronousTestCase):
    """Errors are one line with the server and the cure."""

    def test_network(self) -> None:
        """Connection refused, timeout, wrong certificate, no TLS, no HTTP."""
        wrong = ssl.SSLCertVerificationError(1, "x")
        wrong.verify_message = "self-signed certificate"
        for error, text in (
            (ConnectionRefusedError(111, "Connection refused"), "check that tower-proxy runs there"),
            (TimeoutError("timed out"), "did not answer within 30 s"),
            (wrong, "does not match the kubeconfig (self-signed certificate)"),
            (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "TLS with"),
            (http.client.BadStatusLine("x"), "is not a Tower proxy"),
            (http.client.IncompleteRead(b"x"), "closed the connection during its answer"),
        ):
            broken: Any = Broken(error)
            with self.assertRaises(CommandFailed) as caught:
                TowerClient(KubeAccess(SERVER), partial(_same, broken)).call("GET", "/version")
            self.assertIn(text, str(caught.exception))
            self.assertIn(SERVER, str(caught.exception))
            self.assertNotIsInstance(caught.exception, CallFailed)
            self.assertTrue(broken.closed)

    def test_quoted(self) -> None:
        """Characters that end a path segment are quoted."""
        self.assertEqual(quoted("SHA256:a_b-c"), "SHA256:a_b-c")
        self.assertEqual(quoted("../a?b#c d"), "..%2Fa%3Fb%23c%20d")


class ConnectionTests(SynchronousTestCase):
    """Connections to the server."""

    def test_http_proxy(self) -> None:
        """A kubeconfig's HTTP proxy is used."""
        access = KubeAccess(SERVER, proxy_url="http://proxy.example.org:3128")
        connection = open_connection(access)
        self.assertEqual((connection.host, connection.port), ("proxy.example.org", 3128))
        self.assertEqual(open_connection(KubeAccess("http://127.0.0.1:1")).port, 1)
