"""Tests of `tower.nodes.http_agent`: treq over pipes in memory."""

from __future__ import annotations

from typing import Any

import treq
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.error import SchemeNotSupported
from twisted.web.iweb import IAgent
from zope.interface.verify import verifyObject

from tests.fakes.apiservers import Member
from tests.fakes.certificates import client_context
from tests.fakes.kubelets import CA, OTHER, KubeletPipe
from tower.errors import ClusterUnreachable
from tower.nodes.http_agent import CONNECT, HANDSHAKE, IDLE, NodeAgent


class NodeAgentTests(SynchronousTestCase):
    """Requests through nodes."""

    def setUp(self) -> None:
        """An agent, and a server behind the nodes."""
        self.member = Member()
        self.dialed: list[tuple[str, int]] = []
        self.way: Any = self.member.open
        self.agent = NodeAgent(self.member.clock, self.dial, client_context(CA))

    async def dial(self, host: str, port: int) -> Any:
        """Open a connection to the server."""
        self.dialed.append((host, port))
        return await self.way()

    def get(self, url: str) -> Deferred[Any]:
        """Ask."""

        async def ask() -> bytes:
            response = await treq.get(url, agent=self.agent)
            return await treq.content(response)

        asking = Deferred.fromCoroutine(ask())
        self.member.serve()
        return asking

    def why_not(self, asking: Deferred[Any]) -> str:
        """Return why the request failed."""
        return str(self.failureResultOf(asking, ConnectError).value)

    def test_interface(self) -> None:
        """It is an agent."""
        self.assertTrue(verifyObject(IAgent, self.agent))

    def test_plain(self) -> None:
        """A request goes to host and port of its URL."""
        self.member.answer = lambda _: (200, b"from a pod")
        self.assertEqual(self.successResultOf(self.get("http://10.1.2.3:8080/a?b=c")), b"from a pod")
        self.assertEqual(self.dialed, [("10.1.2.3", 8080)])
        self.assertEqual(self.member.requests[0].uri, b"/a?b=c")
        self.assertEqual(self.member.requests[0].getHeader(b"host"), b"10.1.2.3:8080")

    def test_ipv6(self) -> None:
        """Addresses of IPv6 are dialed without brackets."""
        self.agent.request(b"GET", b"http://[fd00::1]:8080/")
        self.get("http://service.default.svc/")
        self.assertEqual(self.dialed, [("fd00::1", 8080), ("service.default.svc", 80)])

    def test_kept(self) -> None:
        """Connections are kept for the next request, for as long as upstream does, and can be closed."""
        for _ in range(2):
            self.get("http://10.1.2.3/")
        self.assertEqual(len(self.dialed), 1)
        self.member.clock.advance(IDLE)
        self.assertTrue(self.member.pipes[0].lost)
        self.get("http://10.1.2.3/")
        self.agent.close_idle_connections()
        self.assertTrue(self.member.pipes[1].lost)
        self.assertEqual(self.member.clock.getDelayedCalls(), [])

    def test_unreachable(self) -> None:
        """The error of a failed dial has the address and the reason."""

        async def nobody() -> Any:
            raise ClusterUnreachable("No SSH tunnels currently open.")

        self.way = nobody
        self.assertIn(
            "10.1.2.3:80: No SSH tunnels currently open.", self.why_not(self.get("http://10.1.2.3/"))
        )

    def test_too_late(self) -> None:
        """A connection that does not open times out."""
        given_up = []
        self.way = lambda: Deferred(lambda _: given_up.append(True))
        asking = self.get("http://10.1.2.3/")
        self.member.clock.advance(CONNECT - 0.1)
        self.assertNoResult(asking)
        self.member.clock.advance(0.1)
        self.assertIn("no connection within 30 s", self.why_not(asking))
        self.assertEqual(given_up, [True])

    def tls(self, pipe: KubeletPipe, url: str) -> Deferred[Any]:
        """Ask one that speaks TLS."""

        async def way() -> Any:
            return pipe

        self.way = way
        asking = self.get(url)
        pipe.serve()
        return asking

    def test_tls(self) -> None:
        """An https server is verified by the name in the URL."""
        pipe = KubeletPipe(CA, "10.1.2.3")
        asking = self.tls(pipe, "https://10.1.2.3:10250/pods")
        self.assertTrue(pipe.got.startswith(b"GET /pods HTTP/1.1\r\n"), pipe.got)
        self.assertNoResult(asking)
        asking.cancel()
        self.failureResultOf(asking)

    def test_tls_by_another(self) -> None:
        """A server with another name or an unknown CA does not receive the request."""
        for pipe in (KubeletPipe(CA, "10.1.2.4"), KubeletPipe(OTHER, "10.1.2.3")):
            asking = self.tls(pipe, "https://10.1.2.3:10250/pods")
            self.assertIn("10.1.2.3:10250: ", self.why_not(asking))
            self.assertEqual(pipe.got, b"")

    def test_tls_too_late(self) -> None:
        """A handshake that does not end is given up."""
        pipe = KubeletPipe(CA, "10.1.2.3")

        async def way() -> Any:
            return pipe

        self.way = way
        asking = self.get("https://10.1.2.3:10250/pods")
        self.member.clock.advance(HANDSHAKE)
        self.assertIn("the TLS handshake took longer than 10 s", self.why_not(asking))
        self.assertTrue(pipe.lost)

    def test_other_schemes(self) -> None:
        """Nothing else is spoken."""
        self.failureResultOf(self.agent.request(b"GET", b"ftp://10.1.2.3/"), SchemeNotSupported)
