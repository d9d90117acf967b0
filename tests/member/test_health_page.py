"""Tests of `tower.member.health_page`."""

from __future__ import annotations

from typing import cast

from attrs import define
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from tower.member.health_page import HealthService
from tower.member.reconnecting import Reconnecting


@define
class Subject:
    """Something that may be ready."""

    ready: bool = False
    state: str = "connecting"


class HealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a page that listens in memory."""
        self.subject = Subject()
        self.reactor = MemoryReactorClock()
        service = HealthService(self.reactor, "127.0.0.1", 8081, cast(Reconnecting, self.subject))
        service.startService()
        self.addCleanup(service.stopService)

    def ask(self, path: bytes, method: bytes = b"GET") -> tuple[int, bytes]:
        """Return status and body of an answer."""
        port, factory, _, interface = self.reactor.tcpServers[0]
        self.assertEqual((port, interface), (8081, "127.0.0.1"))
        protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        assert protocol is not None
        transport = StringTransport()
        protocol.makeConnection(transport)
        protocol.dataReceived(method + b" " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        head, _, body = transport.value().partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def test_alive(self) -> None:
        """The agent is healthy whether it has a tunnel or not."""
        self.assertEqual(self.ask(b"/healthz"), (200, b"ok\n"))

    def test_ready(self) -> None:
        """The page is ready while the tunnel is up, and shows the state otherwise."""
        self.assertEqual(self.ask(b"/readyz"), (503, b"not ready: connecting\n"))
        self.subject.ready = True
        self.assertEqual(self.ask(b"/readyz"), (200, b"ok\n"))
        self.assertEqual(self.ask(b"/readyz", b"HEAD"), (200, b""))

    def test_other(self) -> None:
        """There is nothing else, and nothing to be changed."""
        self.assertEqual(self.ask(b"/")[0], 404)
        self.assertEqual(self.ask(b"/healthz", b"POST")[0], 405)
