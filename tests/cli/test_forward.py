"""Tests for `tower.cli.forward`."""

from __future__ import annotations

import argparse

import yaml
from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.cli import CommandTestCase
from tower.cli.arguments import listen_address
from tower.cli.errors import CommandFailed
from tower.cli.forward import ForwardCredential
from tower.kube.kubeconfig import KubeAccess
from tower.streamclient import front_door_address


class CredentialTests(CommandTestCase):
    """Credentials for streams."""

    def credential(self, server: str = "https://127.0.0.1:8443") -> ForwardCredential:
        """Return a credential for alpha; its threads run synchronously."""
        access = KubeAccess(server, self.serving.pem, token="t0ken", tls_server_name="tower")
        return ForwardCredential(
            self.client(access), "alpha", "pg", "joe", lambda ask: succeed(ask()), self.clock.seconds
        )

    def test_issued(self) -> None:
        """An administrator's kubeconfig yields a credential for the cluster at the same server."""
        self.add("alpha")
        credential = self.credential()
        credential.first()
        address = self.successResultOf(credential.address())
        self.assertEqual((address.host, address.port, address.server_name), ("127.0.0.1", 8443, "tower"))
        (record,) = self.store.snapshot("credentials").values()
        self.assertEqual((record.value["user"], record.value["cluster"]), ("joe", "alpha"))
        head = address.request.decode().split("\r\n")
        self.assertEqual(head[0], "GET /clusters/alpha/targets/pg HTTP/1.1")
        self.assertIn("Upgrade: tower-stream", head)
        self.assertEqual(head[-2:], ["", ""])
        self.assertRegex(head[-3], "^Authorization: Bearer towerk-")
        self.assertNotIn("towerk-", repr(address))

    def test_renewed(self) -> None:
        """A credential is reused until it expires soon, then renewed; all are revoked at the end."""
        self.add("alpha")
        credential = self.credential()
        credential.first()
        first = self.successResultOf(credential.address())
        self.clock.advance(7 * 3600)
        self.assertIs(self.successResultOf(credential.address()), first)
        self.clock.advance(3600 - 299)
        second = self.successResultOf(credential.address())
        self.assertNotEqual(second.request, first.request)
        self.assertEqual(len(self.store.snapshot("credentials")), 2)
        credential.withdraw()
        (gone, also) = self.store.snapshot("credentials").values()
        self.assertIsNotNone(gone.value["revoked_at"])
        self.assertIsNotNone(also.value["revoked_at"])

    def test_users_file(self) -> None:
        """A kubeconfig for the cluster is used unchanged."""
        credential = self.credential("https://127.0.0.1:8443/clusters/alpha")
        credential.first()
        address = self.successResultOf(credential.address())
        self.assertIn(b"Bearer t0ken", address.request)
        self.assertEqual(self.connection.requests, [])
        credential.withdraw()

    def test_no_cluster(self) -> None:
        """A missing cluster is named at the start."""
        self.assertIn("no cluster alpha", str(self.assertRaises(CommandFailed, self.credential().first)))

    def test_certificate(self) -> None:
        """A user's certificate goes into the TLS context, and no token into the request."""
        self.add("alpha")
        text = yaml.safe_load(self.good("kubeconfig", "alpha", "--user", "jane"))
        self.assertIn("client-key-data", text["users"][0]["user"])
        issued = self.users.client_certificate("jane", [], "alpha", "u", 60, self.clock.seconds())
        access = KubeAccess(
            "https://h:1/clusters/alpha", self.serving.pem, issued.certificate_pem, issued.key_pem
        )
        address = front_door_address(access, "/clusters/alpha", "pg")
        self.assertNotIn(b"Authorization", address.request)
        self.assertIsNotNone(address.tls)


class ListenTests(SynchronousTestCase):
    """`--listen`."""

    def test_addresses(self) -> None:
        """Addresses with a port are accepted."""
        for text, expected in (
            ("127.0.0.1:5432", ("127.0.0.1", 5432)),
            ("[::1]:0", ("::1", 0)),
            ("localhost:1", ("127.0.0.1", 1)),
            (":5432", ("127.0.0.1", 5432)),
            ("5432", ("127.0.0.1", 5432)),
        ):
            self.assertEqual(listen_address(text), expected)

    def test_wrong(self) -> None:
        """Invalid addresses are rejected."""
        for text in ("db:5432", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", ""):
            self.assertRaises(argparse.ArgumentTypeError, listen_address, text)
