"""Tests of `tower.http.proxied_endpoints`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS, HTTPConnectionPool

from tests.fakes.pipes import FakePipe
from tower.errors import ConfigurationError
from tower.http.proxied_endpoints import ProxiedEndpoints
from tower.net.connecting import ConnectFailed
from tower.reactor.interfaces import IReactor

PROXY = "http://jane:secret@squid.example:3128"


class WaysTests(SynchronousTestCase):
    """Routes, by the calls of the reactor and of the fake `connect`."""

    def setUp(self) -> None:
        """Make a test without connections."""
        self.reactor = MemoryReactorClock()
        self.pipes: list[FakePipe] = []
        self.dialed: list[tuple[str, int]] = []
        self.problem: Exception | None = None

    def reach(self, _: Any, host: str, port: int, *, timeout: float) -> Deferred[Any]:
        """Connect."""
        self.assertEqual(timeout, 7.0)
        self.dialed.append((host, port))
        if self.problem is not None:
            return fail(self.problem)
        self.pipes.append(FakePipe())
        return succeed(self.pipes[-1])

    def ask(self, url: str, **environ: str) -> Deferred[Any]:
        """Send a request."""
        reactor = cast(IReactor, self.reactor)
        endpoints = ProxiedEndpoints(reactor, BrowserLikePolicyForHTTPS(), 7.0, environ, self.reach)
        pool = HTTPConnectionPool(self.reactor, persistent=False)
        agent: Any = Agent.usingEndpointFactory(self.reactor, endpoints, pool)
        asking: Deferred[Any] = agent.request(b"GET", url.encode("ascii"))
        return asking

    def ports(self) -> list[int]:
        """Return to which ports the reactor was asked to connect; all names are the same to it."""
        return [port for _, port, *_ in self.reactor.tcpClients]

    def test_by_proxy(self) -> None:
        """Requests by HTTPS go through the proxy, which sees only TLS."""
        self.ask("https://ec2.example.com/", HTTPS_PROXY=PROXY)
        self.assertEqual((self.dialed, self.ports()), ([("squid.example", 3128)], []))
        (pipe,) = self.pipes
        head = pipe.taken()
        self.assertTrue(head.startswith(b"CONNECT ec2.example.com:443 HTTP/1.1\r\n"), head)
        self.assertIn(b"Proxy-Authorization: Basic amFuZTpzZWNyZXQ=\r\n", head)
        pipe.deliver(b"HTTP/1.1 200 Connection established\r\n\r\n")
        hello = pipe.taken()
        self.assertEqual(hello[:1], b"\x16")
        self.assertIn(b"ec2.example.com", hello)

    def test_straight_on(self) -> None:
        """Without a proxy, or where it is not to be used, connections are the reactor's as ever."""
        for environ in ({}, {"HTTPS_PROXY": PROXY, "NO_PROXY": "192.0.2.0/24"}, {"HTTP_PROXY": PROXY}):
            self.reactor.tcpClients.clear()
            self.ask("https://192.0.2.7:8443/", **environ)
            self.assertEqual((self.dialed, self.ports()), ([], [8443]))

    def test_metadata(self) -> None:
        """Metadata services, and all other requests by plain HTTP, bypass the proxy."""
        everything = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}
        for scheme in ("http", "https"):
            for number, host in enumerate(
                (
                    "169.254.169.254",
                    "169.254.170.2",
                    "[fd00:ec2::254]",
                    "[fe80::a9fe:a9fe]",
                    "metadata.google.internal",
                    "Metadata.Google.Internal.",
                )
            ):
                self.ask(f"{scheme}://{host}:{7000 + number}/x", **everything)
                self.assertEqual(self.ports()[-1], 7000 + number)
        self.ask("http://keystone.example:5000/v3", **everything)
        self.assertEqual(self.ports()[-1], 5000)
        self.assertEqual(self.dialed, [])

    def test_not_connected_through(self) -> None:
        """The error has the proxy's response and address, without the credential."""
        asking = self.ask("https://ec2.example.com/", https_proxy=PROXY)
        self.pipes[-1].deliver(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        text = str(self.failureResultOf(asking, ConnectFailed).value)
        self.assertEqual(
            text,
            "the HTTP proxy squid.example:3128 (https_proxy) answered CONNECT with 407 Proxy Authentication "
            "Required",
        )
        self.assertTrue(self.pipes[-1].aborted)

    def test_not_reached(self) -> None:
        """The error of an unreachable proxy has its address."""
        self.problem = ConnectFailed("refused", "squid.example:3128: connection refused")
        asking = self.ask("https://ec2.example.com/", https_proxy=PROXY)
        text = str(self.failureResultOf(asking, ConnectFailed).value)
        self.assertEqual(text, "the HTTP proxy squid.example:3128: connection refused")

    def test_given_up(self) -> None:
        """A cancelled request leaves no connection to the proxy."""
        asking = self.ask("https://ec2.example.com/", https_proxy=PROXY)
        asking.cancel()
        self.assertTrue(self.pipes[-1].aborted)
        self.failureResultOf(asking)

    def test_no_proxy_of_ours(self) -> None:
        """An invalid proxy is an error at once, without its credential."""
        error = self.assertRaises(
            ConfigurationError, self.ask, "https://x/", HTTPS_PROXY="socks5://u:secret@h"
        )
        self.assertIn("HTTPS_PROXY", str(error))
        self.assertNotIn("secret", str(error))
