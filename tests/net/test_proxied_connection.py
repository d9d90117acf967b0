"""Tests of `tower.net.proxied_connection`."""

from __future__ import annotations

import socket
import ssl
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tower.net.connecting import ConnectFailed
from tower.net.proxied_connection import open_connection
from tower.net.proxy_environment import HTTPProxy, ServerURL
from tower.reactor.interfaces import ISocketReactor

URL = ServerURL(secure=True, host="api.example", port=6443, resource="/")
PROXY = HTTPProxy("squid.example", 3128, variable="HTTPS_PROXY")
OPENED = b"HTTP/1.1 200 OK\r\n\r\n"


class DetachablePipe(FakePipe):
    """A pipe that hands over a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.socket, self.far = socket.socketpair()

    def detach(self) -> socket.socket:
        """Return the socket."""
        return self.socket


class OpenTests(SynchronousTestCase):
    """Connections, by the calls of a fake `connect`."""

    def setUp(self) -> None:
        """Make a test without connections."""
        self.clock = Clock()
        self.dialed: list[tuple[str, int, dict[str, Any]]] = []
        self.pipe = DetachablePipe()
        for end in (self.pipe.socket, self.pipe.far):
            self.addCleanup(end.close)

    def connect(self, _: Any, host: str, port: int, **options: Any) -> Deferred[Any]:
        """Connect."""
        self.dialed.append((host, port, options))
        return succeed(self.pipe)

    def open(self, proxy: HTTPProxy | None, tls: ssl.SSLContext | None, name: str = "api") -> Deferred[Any]:
        """Open a connection."""
        reactor = cast(ISocketReactor, self.clock)
        return Deferred.fromCoroutine(
            open_connection(reactor, URL, proxy, tls=tls, server_name=name, timeout=7, connect=self.connect)
        )

    def test_direct(self) -> None:
        """Without an HTTP proxy it is one step."""
        context = ssl.create_default_context()
        self.assertIs(self.successResultOf(self.open(None, context)), self.pipe)
        options = {"tls": context, "server_hostname": "api", "timeout": 7}
        self.assertEqual(self.dialed, [("api.example", 6443, options)])

    def test_proxied(self) -> None:
        """The HTTP proxy connects to the server."""
        opening = self.open(PROXY, None)
        self.assertEqual(self.dialed, [("squid.example", 3128, {"timeout": 7})])
        self.assertTrue(self.pipe.taken().startswith(b"CONNECT api.example:6443 HTTP/1.1\r\n"))
        self.pipe.deliver(OPENED)
        self.assertIs(self.successResultOf(opening), self.pipe)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent_proxy(self) -> None:
        """An HTTP proxy that does not answer is named."""
        opening = self.open(PROXY, None)
        self.clock.advance(7)
        error = self.failureResultOf(opening, ConnectFailed).value
        self.assertEqual(
            str(error), "the HTTP proxy squid.example:3128 (HTTPS_PROXY) did not answer within 7 s"
        )
        self.assertTrue(self.pipe.aborted)

    def test_cancel(self) -> None:
        """Canceled, it leaves no connection."""
        opening = self.open(PROXY, None)
        opening.cancel()
        self.failureResultOf(opening, CancelledError)
        self.assertEqual((self.pipe.aborted, self.clock.getDelayedCalls()), (True, []))

    def test_invalid_name(self) -> None:
        """A name that no certificate can have is an error, and the socket is closed."""
        opening = self.open(PROXY, ssl.create_default_context(), "..")
        self.pipe.deliver(OPENED)
        self.assertIn(
            "'..' is not a valid server name", str(self.failureResultOf(opening, ConnectFailed).value)
        )
        self.assertEqual(self.pipe.socket.fileno(), -1)
