"""Tests of `tower.v1.outgoing`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tests.fakes.streams import FakeIncoming
from tower.conch.connection.channel_open import Incoming
from tower.errors import TunnelLost
from tower.net.connecting import ConnectFailed
from tower.reactor.interfaces import ISocketReactor
from tower.tunnels.targets import ServiceAddress
from tower.v1.config import CHANNEL, AgentConfig
from tower.v1.outgoing import V1Outgoing
from tower.v1.registration import Registration

REGISTRATION = Registration(
    AgentConfig(
        name="alpha", token="t0ken-of-alpha", kubernetes="Kubernetes:6443", kubesphere="[fd00::1]:80"
    ),
    {"kubernetes:6443": ServiceAddress("10.0.0.1", 6443), "[fd00::1]:80": ServiceAddress("fd00::1", 80)},
)


class V1OutgoingTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Accept the streams of one tunnel; the test completes their connects."""
        self.asked: list[tuple[str, int, dict[str, Any]]] = []
        self.dialed: list[Deferred[Any]] = []
        self.outgoing = V1Outgoing(cast(ISocketReactor, Clock()), connect=self.connect)
        self.dialing = self.outgoing.for_tunnel(REGISTRATION)

    def connect(self, reactor: Any, host: str, port: int, **options: Any) -> Deferred[Any]:
        """Be `tower.net.connecting.connect`."""
        self.asked.append((host, port, options))
        self.dialed.append(Deferred())
        return self.dialed[-1]

    def want(self, address: bytes, kind: bytes = CHANNEL) -> FakeIncoming:
        """Let the proxy request a stream."""
        incoming = FakeIncoming(b"", kind=kind, data=address)
        self.dialing.accept(cast(Incoming, incoming))
        return incoming

    def test_registered(self) -> None:
        """The two registered addresses are dialed where they are configured, without TLS by us."""
        self.want(b"Kubernetes:6443")
        self.want(b"[fd00::1]:80")
        self.assertEqual([asked[:2] for asked in self.asked], [("10.0.0.1", 6443), ("fd00::1", 80)])
        self.assertEqual(set(self.asked[0][2]), {"timeout"})

    def test_others(self) -> None:
        """Hole 4: nothing else is dialed, however it is written, and no other type of channel is opened."""
        for address in (
            b"169.254.169.254:80",
            b"10.0.0.1:6443",
            b"kubernetes:443",
            b"kubernetes",
            b"kubernetes:6443\0",
            b" kubernetes:6443",
            b"kubernetes:06443",
            b"fd00::1:80",
            b"",
            b"\xff" * 100_000,
        ):
            refusal = self.want(address).refusal
            assert refusal is not None
            self.assertEqual(refusal[0], "not-allowed", address)
        for kind in (b"session", b"direct-tcpip", b"stream@tower.kubesphere.io"):
            self.assertIsNotNone(self.want(b"kubernetes:6443", kind).refusal)
        self.assertEqual(self.asked, [])

    def test_dial_before_accept(self) -> None:
        """Hole 18: a stream is accepted once its target has answered, and refused if it does not."""
        incoming = self.want(b"kubernetes:6443")
        self.assertFalse(incoming.accepted)
        self.dialed[0].errback(ConnectFailed("refused", "10.0.0.1:6443: connection refused"))
        self.assertEqual(incoming.refusal, ("refused", "10.0.0.1:6443: connection refused"))
        incoming = self.want(b"kubernetes:6443")
        self.dialed[1].callback(FakePipe())
        self.assertTrue(incoming.accepted)

    def test_half_close(self) -> None:
        """Hole 17: bytes are relayed unchanged, and the end of one direction leaves the other open."""
        incoming = self.want(b"kubernetes:6443")
        connection = FakePipe()
        self.dialed[0].callback(connection)
        channel = incoming.channel
        channel.deliver(b"\x16\x03\x01")
        channel.end()
        self.assertEqual((connection.taken(), connection.finished), (b"\x16\x03\x01", True))
        connection.deliver(b"the tail")
        self.assertEqual((channel.taken(), channel.finished), (b"the tail", False))
        connection.end()
        self.assertTrue(channel.finished)

    def test_log(self) -> None:
        """A refused address is logged, shortened, and not if it is our token."""
        with capturedLogs() as events:
            for address in (b"evil.example:80", b"x" * 1000, b"t0ken-of-alpha:1", b""):
                self.want(address)
        shown = [event["target"] for event in events]
        self.assertEqual(shown[0], "evil.example:80")
        self.assertLess(len(shown[1]), 300)
        self.assertNotIn("t0ken", repr(events))

    def test_gone(self) -> None:
        """When the tunnel goes, what is being dialed for it is given up."""
        self.want(b"kubernetes:6443")
        self.dialing.lost(TunnelLost("x"))
        self.assertTrue(self.dialed[0].called)
