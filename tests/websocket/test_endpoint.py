"""Tests of `tower.websocket.endpoint`."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tower.net.pipes import Pipe
from tower.websocket.endpoint import PATIENCE, REMINDER, AgentEndpoint

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 section 1.3


def head(*fields: bytes, protocol: bytes | None = b"tower-v2") -> bytes:
    """Return the request of an agent."""
    lines = [
        b"GET /agent HTTP/1.1",
        b"Host: proxy.example:8080",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: " + KEY,
        b"Sec-WebSocket-Version: 13",
        *fields,
    ]
    if protocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + protocol)
    return b"\r\n".join([*lines, b"", b""])


class AgentEndpointTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Make an endpoint with a limit of two."""
        self.opened: list[tuple[Pipe, bytes]] = []
        self.settled: list[Deferred[Any]] = []
        self.clock = Clock()
        self.endpoint = AgentEndpoint(self.clock, {b"tower-v2": self.open}, limit=2)

    def open(self, pipe: Pipe, leftover: bytes) -> Deferred[Any]:
        """Be the tunnel."""
        self.opened.append((pipe, leftover))
        self.settled.append(Deferred())
        return self.settled[-1]

    def accept(self, received: bytes, host: str = "192.0.2.1") -> FakePipe:
        """Connect an agent."""
        pipe = FakePipe()
        pipe.getPeer = lambda: IPv4Address("TCP", host, 4711)  # type: ignore[attr-defined]
        pipe.receiver = Recorder()
        self.endpoint.accept(pipe, received)
        return pipe

    def test_handshake(self) -> None:
        """The agent gets its 101 and the tunnel gets the connection."""
        pipe = self.accept(head())
        answer = bytes(pipe.sent)
        self.assertTrue(answer.startswith(b"HTTP/1.1 101 "))
        self.assertIn(b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", answer)
        self.assertIn(b"\r\nSec-WebSocket-Protocol: tower-v2\r\n", answer)
        self.assertNotIn(b"Server:", answer)
        self.assertEqual(self.opened, [(pipe, b"")])
        self.assertTrue(pipe.paused)

    def test_leftover(self) -> None:
        """The bytes after the handshake are passed to the tunnel."""
        self.accept(head() + b"\x82\xffframe")
        self.assertEqual(self.opened[0][1], b"\x82\xffframe")

    def test_other_subprotocols(self) -> None:
        """Only the exact subprotocol is taken."""
        for protocol in (None, b"kubesphere-v1", b"tower-v2, kubesphere-v1", b"tower-v3", b"Tower-v2"):
            pipe = self.accept(head(protocol=protocol))
            self.assertTrue(bytes(pipe.sent).startswith(b"HTTP/1.1 400 "), protocol)
            self.assertTrue(pipe.closing)
        self.assertEqual((self.opened, self.endpoint.pending, self.endpoint.refused), ([], 0, 5))

    def test_not_a_websocket(self) -> None:
        """A request that is not a handshake is answered and closed."""
        for broken in (
            head().replace(KEY, b"short"),
            head().replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"),
            head().replace(b"GET ", b"POST "),
        ):
            pipe = self.accept(broken)
            self.assertTrue(bytes(pipe.sent).startswith(b"HTTP/1.1 4"), broken)
            self.assertTrue(pipe.closing)
        self.assertEqual(self.opened, [])

    def test_incomplete(self) -> None:
        """An incomplete head is rejected at once."""
        self.assertTrue(self.accept(head()[:-2]).closing)
        self.assertEqual(self.endpoint.pending, 0)

    def test_compression(self) -> None:
        """Compression is not agreed to."""
        pipe = self.accept(head(b"Sec-WebSocket-Extensions: permessage-deflate"))
        self.assertNotIn(b"Extensions", bytes(pipe.sent))
        self.assertEqual(len(self.opened), 1)

    def test_limit(self) -> None:
        """At the limit, the next agent is asked to come again."""
        self.accept(head())
        self.accept(head())
        pipe = self.accept(head())
        answer = bytes(pipe.sent)
        self.assertTrue(answer.startswith(b"HTTP/1.1 503 "))
        length = int(answer.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        self.assertEqual(len(answer.split(b"\r\n\r\n")[1]), length)
        self.assertTrue(pipe.closing)
        self.assertEqual((len(self.opened), self.endpoint.refused), (2, 1))

    def test_slow_ones_go(self) -> None:
        """When there is no room, the first has to go after a while, and only as many as are needed."""
        first, second = self.accept(head()), self.accept(head())
        self.clock.advance(PATIENCE)
        third = self.accept(head())
        self.assertEqual((first.aborted, second.aborted, third.closing), (True, False, False))
        self.settled[0].callback(None)
        self.assertEqual((len(self.opened), self.endpoint.pending), (3, 2))
        self.accept(head())
        self.assertTrue(second.aborted)
        self.assertTrue(self.accept(head()).closing)
        self.assertFalse(third.aborted)

    def test_fair_to_addresses(self) -> None:
        """An address with all slots loses one to each new agent from another address, while it has more."""
        self.endpoint = AgentEndpoint(self.clock, {b"tower-v2": self.open}, limit=4)
        many = [self.accept(head(), "192.0.2.1") for _ in range(4)]
        first = self.accept(head(), "192.0.2.2")
        self.assertEqual(
            ([each.aborted for each in many], first.closing), ([True, False, False, False], False)
        )
        self.assertTrue(self.accept(head(), "192.0.2.1").closing)
        second = self.accept(head(), "192.0.2.2")
        self.assertEqual(
            ([each.aborted for each in many], second.closing), ([True, True, False, False], False)
        )
        self.assertTrue(self.accept(head(), "192.0.2.2").closing)
        self.assertTrue(self.accept(head(), "192.0.2.1").closing)
        self.assertEqual((self.endpoint.pending, self.endpoint.refused), (4, 3))

    def test_many_addresses(self) -> None:
        """Agents that connect at once, each from another address, do not evict each other."""
        agents = [self.accept(head(), f"192.0.2.{number}") for number in range(3)]
        self.assertEqual([each.aborted for each in agents], [False, False, False])
        self.assertEqual([each.closing for each in agents], [False, False, True])

    def test_no_agent_for_a_mistake(self) -> None:
        """No connection is evicted for a request that is not a handshake."""
        first = self.accept(head())
        self.accept(head())
        self.clock.advance(PATIENCE)
        self.accept(head(protocol=None))
        self.assertFalse(first.aborted)

    def test_complaint(self) -> None:
        """Rejections are logged once a minute, regardless of their number."""
        self.accept(head())
        self.accept(head())
        with capturedLogs() as events:
            for _ in range(100):
                self.accept(head())
            self.assertEqual(len(events), 1)
            self.settled.clear()
            self.clock.advance(REMINDER)
            for _ in range(100):
                self.accept(head())
            self.assertEqual(len(events), 2)

    def test_settled(self) -> None:
        """An authenticated connection frees its slot, and so does an internal error, which is logged."""
        self.accept(head())
        self.accept(head())
        self.settled[0].callback(None)
        self.settled[1].errback(ValueError("gone"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.endpoint.pending, 0)
        self.accept(head())
        self.assertEqual(len(self.opened), 3)
