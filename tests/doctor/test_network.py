"""Tests for `tower.doctor.network`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tower.doctor.network import PATIENCE, Glimpse, Network
from tower.net.proxy_environment import HTTPProxy, parse_server_url
from tower.net.tls.ca_pinning import ChainUnknown

URL = parse_server_url("ws://tower.example:8080")
ANSWER = b"HTTP/1.1 401 Unauthorized\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nX: y\r\n\r\nbody"


class GlimpseTests(SynchronousTestCase):
    """The start of an answer."""

    def test_parsed(self) -> None:
        """Status and date are read; other data has neither."""
        self.assertEqual(Glimpse.of(ANSWER), Glimpse(401, 1_700_000_000.0, ANSWER[:64]))
        for data in (b"", b"\x15\x03\x01\x00\x02\x02\x16", b"SSH-2.0-x\r\n"):
            self.assertEqual((Glimpse.of(data).code, Glimpse.of(data).date), (0, None))
        for date in (b"yesterday", b"Tue, 99 Nov 2023 22:13:20 GMT"):
            found = Glimpse.of(b"HTTP/1.1 200 OK\r\nDate: " + date + b"\r\n\r\n")
            self.assertEqual((found.code, found.date), (200, None))


class NetworkTests(SynchronousTestCase):
    """Connections."""

    def setUp(self) -> None:
        """Make a network whose connections the test plays."""
        self.clock = Clock()
        self.pipes: list[FakePipe] = []
        self.dialed: list[tuple[str, int]] = []
        reactor: Any = self.clock
        self.network = Network(reactor, self.lookup, self.connect)

    def lookup(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        """Resolve a name to one address twice."""
        return [(2, 1, 6, "", ("192.0.2.1", port))] * 2

    def connect(self, reactor: object, host: str, port: int, **_: object) -> Deferred[Any]:
        """Return a pipe."""
        self.dialed.append((host, port))
        self.pipes.append(FakePipe())
        return succeed(self.pipes[-1])

    def glimpse(self) -> Deferred[Glimpse]:
        """Request the version."""
        return Deferred.fromCoroutine(self.network.glimpse(URL, None, "/version"))

    def test_resolve(self) -> None:
        """Addresses are listed once."""
        self.assertEqual(self.network.resolve("h", 1), ["192.0.2.1"])

    def test_glimpse(self) -> None:
        """The request has no credential; the connection is closed after the head."""
        asked = self.glimpse()
        (pipe,) = self.pipes
        self.assertEqual(
            pipe.taken(), b"GET /version HTTP/1.1\r\nHost: tower.example:8080\r\nConnection: close\r\n\r\n"
        )
        pipe.deliver(ANSWER[:30])
        self.assertNoResult(asked)
        pipe.deliver(ANSWER[30:])
        self.assertEqual(self.successResultOf(asked).code, 401)
        self.assertTrue(pipe.aborted)

    def test_other_protocol(self) -> None:
        """Bytes that are not HTTP, an end and silence are answers too."""
        for play in (
            lambda pipe: pipe.deliver(b"\x15\x03\x01\x00\x02"),
            lambda pipe: pipe.end(),
            lambda pipe: pipe.lose(),
            lambda _: self.clock.advance(PATIENCE),
        ):
            asked = self.glimpse()
            play(self.pipes[-1])
            self.assertEqual(self.successResultOf(asked).code, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_through_a_proxy(self) -> None:
        """An HTTP proxy is asked to connect."""
        opening = Deferred.fromCoroutine(self.network.open(URL, HTTPProxy("proxy.example", 3128)))
        self.assertEqual(self.dialed, [("proxy.example", 3128)])
        (pipe,) = self.pipes
        self.assertTrue(pipe.taken().startswith(b"CONNECT tower.example:8080 HTTP/1.1\r\n"))
        pipe.deliver(b"HTTP/1.1 200 OK\r\n\r\n")
        self.assertIs(self.successResultOf(opening), pipe)

    def test_silent_tls(self) -> None:
        """A server that does not answer the TLS handshake has no chain."""
        reading = Deferred.fromCoroutine(self.network.chain(URL, None))
        self.clock.advance(PATIENCE)
        self.failureResultOf(reading, ChainUnknown)
