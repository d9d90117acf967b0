"""Tests of tower.conch.connection.global_requests."""

from __future__ import annotations

from typing import Any

from twisted.conch.ssh.common import NS
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import Mux, Sent, raiser
from tower.conch.connection.global_requests import (
    BURST,
    PENDING,
    ConnectionService,
    RequestRefused,
    Unanswered,
)
from tower.conch.transport.fields import Malformed
from tower.errors import PeerError


class ConnectionServiceTests(SynchronousTestCase):
    """ConnectionService."""

    def setUp(self) -> None:
        """Start a service on a recorder."""
        self.clock = Clock()
        self.service = ConnectionService(self.clock, {})
        self.sent = Sent()
        transport: Any = self.sent
        self.service.transport = transport
        self.service.serviceStarted()

    def test_replies_in_order(self) -> None:
        """Replies belong to requests in the order of both."""
        first = self.service.request(b"one", b"data")
        second = self.service.request(b"two")
        self.assertEqual(self.sent.packets, [(80, NS(b"one") + b"\1data"), (80, NS(b"two") + b"\1")])
        self.service.packetReceived(81, b"yes")
        self.assertEqual(self.successResultOf(first), b"yes")
        self.assertNoResult(second)
        self.service.packetReceived(82, b"")
        self.failureResultOf(second, RequestRefused)

    def test_no_reply_wanted(self) -> None:
        """A request without a reply is done when it is sent."""
        self.assertEqual(self.successResultOf(self.service.request(b"one", want_reply=False)), b"")
        self.assertEqual(self.sent.packets, [(80, NS(b"one") + b"\0")])

    def test_stopped_under_a_reply(self) -> None:
        """A connection that ends while a request is answered calls no callback."""

        def stops(messageType: int, payload: bytes) -> None:
            self.service.serviceStopped()

        self.sent.sendPacket = stops  # type: ignore[method-assign]
        for name in (b"known", b"unknown"):
            self.service = ConnectionService(self.clock, {b"known": lambda transport, data: b""})
            transport: Any = self.sent
            self.service.transport = transport
            self.service.serviceStarted()
            self.service.packetReceived(80, NS(name) + b"\1")
        self.assertEqual(self.sent.order, [])

    def test_reply_to_nothing(self) -> None:
        """A reply without a pending request breaks the protocol."""
        for kind in (81, 82):
            with self.assertRaises(PeerError):
                self.service.packetReceived(kind, b"")

    def test_bounded(self) -> None:
        """A peer that never answers does not make us remember for ever."""
        waiting = [self.service.request(b"x") for _ in range(PENDING)]
        self.failureResultOf(self.service.request(b"x"), Unanswered)
        self.service.serviceStopped()
        for request in waiting:
            self.failureResultOf(request, Unanswered)
        self.failureResultOf(self.service.request(b"x"), Unanswered)

    def test_answering(self) -> None:
        """A known request is answered from the table, and its answer is followed up after it was sent."""
        self.service.answers = {b"known": lambda transport, data: data * 2}
        self.service.packetReceived(80, NS(b"known") + b"\1ab")
        self.service.packetReceived(80, NS(b"known") + b"\0ab")
        self.assertEqual(self.sent.packets, [(81, b"abab")])
        self.assertEqual(self.sent.order, [(b"known", 1), (b"known", 1)])

    def test_refusing(self) -> None:
        """Unknown requests and those that their answer refuses get a failure, if they want a reply."""
        self.service.answers = {b"known": raiser(RequestRefused("no"))}
        for name in (b"known", b"unknown"):
            self.service.packetReceived(80, NS(name) + b"\1")
            self.service.packetReceived(80, NS(name) + b"\0")
        self.assertEqual(self.sent.packets, [(82, b""), (82, b"")])

    def test_malformed(self) -> None:
        """A request that is cut is the peer's mistake."""
        for packet in (b"", b"\0\0\0\5abc", NS(b"name")):
            with self.assertRaises(Malformed):
                self.service.packetReceived(80, packet)

    def test_flood(self) -> None:
        """A burst is answered, a flood ends the connection, and time makes up for it."""
        packet = NS(b"unknown") + b"\1"
        for _ in range(int(BURST)):
            self.service.packetReceived(80, packet)
        with self.assertRaises(PeerError):
            self.service.packetReceived(80, packet)
        self.clock.advance(1.0)
        self.service.packetReceived(80, packet)

    def test_channel_messages(self) -> None:
        """They go to the mux, whole; without one they are too early."""
        with self.assertRaises(PeerError):
            self.service.packetReceived(90, b"abc")
        self.service.mux = mux = Mux()
        for kind in (90, 94, 100):
            self.service.packetReceived(kind, b"abc")
        self.assertEqual(mux.got, [(90, b"\x5aabc"), (94, b"\x5eabc"), (100, b"\x64abc")])

    def test_other_messages(self) -> None:
        """Authentication messages are ignored after authentication; others get "unimplemented"."""
        for kind in (50, 60, 79):
            self.service.packetReceived(kind, b"")
        self.assertEqual(self.sent.unknown, 0)
        for kind in (83, 101, 192, 255):
            self.service.packetReceived(kind, b"")
        self.assertEqual(self.sent.unknown, 4)

    def test_a_reply_that_asks_again(self) -> None:
        """A request may be sent while a reply is dealt with."""
        again: list[Deferred[bytes]] = []
        self.service.request(b"one").addCallback(lambda _: again.append(self.service.request(b"two")))
        self.service.packetReceived(81, b"")
        self.service.packetReceived(81, b"two's")
        self.assertEqual(self.successResultOf(again[0]), b"two's")
