"""Tests of `tower.metrics.port`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import Metric
from prometheus_client.registry import Collector
from twisted.internet import reactor as installed
from twisted.internet.address import IPv4Address
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tower.metrics.families import counter
from tower.metrics.page import MetricsPage, registry_of
from tower.metrics.port import CONNECTIONS, IDLE, MetricsPort

PEER = IPv4Address("TCP", "127.0.0.1", 50000)


class _Opens(Collector):
    """One counter, and a fault on demand."""

    fault: Exception | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the counter."""
        if self.fault is not None:
            raise self.fault
        yield counter("opens_total", "Opens.", 3, cluster="beta")


class MetricsPortTests(SynchronousTestCase):
    """The port, in memory."""

    def setUp(self) -> None:
        """Start a metrics port."""
        self.reactor = MemoryReactorClock()
        self.opens = _Opens()
        page = MetricsPage(self.reactor, registry_of(self.opens), self.reactor.seconds)
        self.port = MetricsPort(self.reactor, page, "127.0.0.1", 21899)
        self.port.startService()
        (self.listening,) = self.reactor.tcpServers
        self.addCleanup(self.port.stopService)

    def connect(self) -> tuple[Any, StringTransport]:
        """Connect; return None if there are too many connections."""
        protocol = self.listening[1].buildProtocol(PEER)
        transport = StringTransport(peerAddress=PEER)
        if protocol is not None:
            protocol.makeConnection(transport)
        return protocol, transport

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Return head and body of the answer."""
        protocol, transport = self.connect()
        protocol.dataReceived(request + b"\r\nHost: x\r\n\r\n")
        head, _, body = transport.value().partition(b"\r\n\r\n")
        return head, body

    def test_address(self) -> None:
        """It listens on the given host and port."""
        self.assertEqual((self.listening[0], self.listening[3]), (21899, "127.0.0.1"))

    def test_listens_once(self) -> None:
        """A port that listens before its start is not opened again by the start."""
        reactor = MemoryReactorClock()
        page = MetricsPage(reactor, registry_of(self.opens), reactor.seconds)
        port = MetricsPort(reactor, page, "127.0.0.1", 21899)
        port.listen()
        port.startService()
        self.assertEqual(len(reactor.tcpServers), 1)
        port.stopService()

    def test_get(self) -> None:
        """The page has the metrics in Prometheus' text format."""
        head, body = self.ask(b"GET /metrics HTTP/1.1")
        self.assertIn(b"HTTP/1.1 200 OK", head)
        self.assertIn(b"text/plain; version=0.0.4; charset=utf-8", head)
        self.assertIn(b'opens_total{cluster="beta"} 3.0\n', body)

    def test_fault(self) -> None:
        """A collector that fails yields status 500, and the next request is answered again."""
        self.opens.fault = ValueError("no counters")
        self.assertIn(b" 500 ", self.ask(b"GET /metrics HTTP/1.1")[0])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.opens.fault = None
        self.assertIn(b" 200 ", self.ask(b"GET /metrics HTTP/1.1")[0])

    def test_head(self) -> None:
        """The answer to HEAD is the head of the answer to GET."""
        head, body = self.ask(b"HEAD /metrics HTTP/1.1")
        _, page = self.ask(b"GET /metrics HTTP/1.1")
        self.assertIn(b"HTTP/1.1 200 OK", head)
        self.assertIn(b"content-length: %d" % len(page), head.lower())
        self.assertEqual(body, b"")

    def test_other_methods(self) -> None:
        """Other methods are rejected."""
        for method in (b"POST", b"PUT", b"DELETE"):
            self.assertIn(b" 405 ", self.ask(method + b" /metrics HTTP/1.1")[0])

    def test_other_paths(self) -> None:
        """There are no other pages."""
        for path in (b"/", b"/metrics2", b"/health"):
            head, body = self.ask(b"GET " + path + b" HTTP/1.1")
            self.assertIn(b" 404 ", head)
            self.assertEqual(body, b"this port has /metrics only\n")

    def test_too_many(self) -> None:
        """Connections above the limit are closed at once, until one ends."""
        connections = [self.connect() for _ in range(CONNECTIONS)]
        self.assertTrue(all(protocol is not None for protocol, _ in connections))
        self.assertIsNone(self.connect()[0])
        connections[0][0].connectionLost(None)
        self.assertIsNotNone(self.connect()[0])

    def test_idle(self) -> None:
        """An idle connection is closed."""
        _, transport = self.connect()
        self.reactor.advance(IDLE - 1)
        self.assertFalse(transport.disconnecting)
        self.reactor.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_stop(self) -> None:
        """Stopping closes all connections, and can be repeated."""
        _, transport = self.connect()
        self.port.stopService()
        self.assertTrue(transport.disconnected)
        self.port.stopService()


class LongPageTests(TestCase):
    """A page of several pieces; Twisted resumes its producer in the global reactor."""

    async def test_long(self) -> None:
        """It is sent piece by piece, and is complete."""
        reactor = MemoryReactorClock()
        times = iter(range(1_000_000))  # each look at the clock is a second later
        page = MetricsPage(reactor, registry_of(_Opens(), _Opens()), lambda: float(next(times)))
        port = MetricsPort(reactor, page, "127.0.0.1", 21900)
        port.startService()
        self.addCleanup(port.stopService)
        protocol: Any = reactor.tcpServers[0][1].buildProtocol(PEER)
        transport = StringTransport(peerAddress=PEER)
        protocol.makeConnection(transport)
        protocol.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        reactor.advance(0)
        body = b""
        while body.count(b"opens_total{") < 2:
            await deferLater(installed, 0)
            head, _, body = transport.value().partition(b"\r\n\r\n")
        self.assertIn(b"content-length: %d" % len(body), head.lower())
