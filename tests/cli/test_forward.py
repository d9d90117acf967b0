"""Tests for `tower.cli.forward`."""

from __future__ import annotations

import argparse
import json
from typing import Any

import yaml
from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.cli import CommandTestCase
from tests.fakes.pipes import FakePipe
from tower.cli import forward
from tower.cli.client import CommandFailed
from tower.cli.forward import ForwardCredential, Forwarder
from tower.cli.values import listen_address
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import ConnectFailed
from tower.streamclient import OPEN_TIMEOUT, FrontDoorAddress, front_door_address


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

    def test_plugin(self) -> None:
        """The token of a kubeconfig's plugin is used until it expires."""
        given: list[float] = []

        def run_plugin(access: KubeAccess, _environ: object) -> tuple[KubeAccess, float]:
            given.append(self.clock.seconds())
            return evolve(access, token=f"t-{len(given)}"), self.clock.seconds() + 240

        self.patch(forward, "with_credential", run_plugin)
        credential = self.credential("https://127.0.0.1:8443/clusters/alpha")
        credential.first()
        for passed, token in ((0, b"t-1"), (239, b"t-1"), (2, b"t-2")):
            self.clock.advance(passed)
            self.assertIn(b"Bearer " + token, self.successResultOf(credential.address()).request)

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


SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tower-stream\r\n\r\n"
STATUS = json.dumps({"kind": "Status", "message": "the agent has no target pg"}).encode()
REFUSED = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(STATUS) + STATUS
ADDRESS = FrontDoorAddress("127.0.0.1", 8443, None, "127.0.0.1", b"GET x\r\n\r\n")


class ForwarderTests(SynchronousTestCase):
    """Connections are forwarded over streams."""

    def setUp(self) -> None:
        """Make a forwarder."""
        self.clock = Clock()
        self.said: list[str] = []
        self.dialed: list[Deferred[Any]] = []
        self.failure: Exception | None = None
        clock: Any = self.clock
        self.forwarder = Forwarder(self.address, self.dial, self.said.append, clock)

    def address(self) -> Deferred[FrontDoorAddress]:
        """Return the front door's address, or fail."""
        return succeed(ADDRESS) if self.failure is None else fail(self.failure)

    def dial(self, address: FrontDoorAddress) -> Deferred[Any]:
        """Return a connection that the test completes."""
        self.assertIs(address, ADDRESS)
        self.dialed.append(Deferred())
        return self.dialed[-1]

    def accept(self) -> FakePipe:
        """Return a new local connection."""
        pipe = FakePipe()
        pipe.receiver = self.forwarder.accept(pipe)
        pipe.resume()
        return pipe

    def open(self, local: FakePipe, answer: bytes = SWITCHED) -> FakePipe:
        """Answer the newest stream as the proxy."""
        stream = FakePipe()
        self.dialed[-1].callback(stream)
        self.assertEqual(stream.taken(), ADDRESS.request)
        stream.deliver(answer)
        return stream

    def check(self) -> Deferred[None]:
        """Start the check of the target."""
        return Deferred.fromCoroutine(self.forwarder.check())

    def test_checked(self) -> None:
        """At the start one stream is opened and closed."""
        checking = self.check()
        stream = FakePipe()
        self.dialed[-1].callback(stream)
        stream.deliver(SWITCHED)
        self.successResultOf(checking)
        self.assertTrue(stream.aborted)
        self.assertEqual((self.said, self.clock.getDelayedCalls()), ([], []))

    def test_checked_unknown(self) -> None:
        """An unknown target is an error at the start."""
        checking = self.check()
        stream = FakePipe()
        self.dialed[-1].callback(stream)
        stream.deliver(REFUSED)
        error = self.failureResultOf(checking, CommandFailed)
        self.assertEqual(str(error.value), "the agent has no target pg")

    def test_checked_away(self) -> None:
        """Failures that may pass are reported, and the command starts."""
        for answer in (REFUSED.replace(b"404", b"503"), REFUSED.replace(b"404", b"429"), b""):
            self.said.clear()
            checking = self.check()
            if answer:
                stream = FakePipe()
                self.dialed[-1].callback(stream)
                stream.deliver(answer)
            else:
                self.dialed[-1].errback(ConnectFailed("refused", "127.0.0.1:8443: connection refused"))
            self.successResultOf(checking)
            self.assertEqual(len(self.said), 1)

    def test_both_ways(self) -> None:
        """Data is forwarded in both directions, including early data; no timer is left."""
        local = self.accept()
        local.deliver(b"early")
        self.assertTrue(local.paused)
        stream = self.open(local, SWITCHED + b"hello")
        self.assertEqual((stream.taken(), local.taken()), (b"early", b"hello"))
        local.deliver(b"more")
        stream.deliver(b"answer")
        self.assertEqual((stream.taken(), local.taken()), (b"more", b"answer"))
        self.assertEqual((self.said, self.clock.getDelayedCalls()), ([], []))

    def test_half_close(self) -> None:
        """A half-close is forwarded; the other direction stays open."""
        local = self.accept()
        stream = self.open(local)
        local.end()
        self.assertTrue(stream.finished)
        stream.deliver(b"the answer")
        self.assertEqual(local.taken(), b"the answer")

    def test_early_half_close(self) -> None:
        """A half-close before the stream opens is forwarded too."""
        local = self.accept()
        local.deliver(b"all")
        local.resume()
        local.end()
        stream = self.open(local)
        self.assertEqual((stream.taken(), stream.finished), (b"all", True))
        stream.deliver(b"answer")
        self.assertEqual(local.taken(), b"answer")

    def test_back_pressure(self) -> None:
        """A full stream pauses the connection."""
        local = self.accept()
        stream = self.open(local)
        stream.full = True
        local.deliver(b"x")
        self.assertTrue(local.paused)
        stream.drain()
        self.assertFalse(local.paused)

    def test_refused(self) -> None:
        """The reason is reported, and the connection aborted."""
        local = self.accept()
        self.open(local, REFUSED)
        self.assertEqual(self.said, ["the agent has no target pg"])
        self.assertTrue(local.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_proxy_unreachable(self) -> None:
        """A connection error of the proxy is reported."""
        local = self.accept()
        self.dialed[0].errback(ConnectFailed("refused", "127.0.0.1:8443: connection refused"))
        self.assertEqual((self.said, local.aborted), (["127.0.0.1:8443: connection refused"], True))

    def test_no_credential(self) -> None:
        """A missing credential is reported, and an unexpected error with its type."""
        for error, text in ((CommandFailed("expired"), "expired"), (KeyError("x"), "KeyError: 'x'")):
            self.said.clear()
            self.failure = error
            self.assertTrue(self.accept().aborted)
            self.assertEqual(self.said, [text])

    def test_proxy_silent(self) -> None:
        """A proxy that does not answer is a timeout."""
        local = self.accept()
        stream = FakePipe()
        self.dialed[0].callback(stream)
        self.clock.advance(OPEN_TIMEOUT)
        self.assertEqual(self.said, [f"the proxy did not open the stream within {OPEN_TIMEOUT:g} s"])
        self.assertTrue(local.aborted and stream.aborted)

    def test_gone_before_dialed(self) -> None:
        """A client that disconnects cancels the dial, without a report."""
        local = self.accept()
        local.lose()
        self.assertEqual(self.said, [])
        self.assertTrue(self.dialed[0].called)

    def test_gone_before_open(self) -> None:
        """A client that disconnects cancels the opening of the stream, without a report."""
        local = self.accept()
        stream = FakePipe()
        self.dialed[0].callback(stream)
        local.lose()
        self.assertEqual((self.said, stream.aborted), ([], True))
        self.assertEqual(self.clock.getDelayedCalls(), [])
