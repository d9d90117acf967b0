"""Tests for `tower.cli.streams`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tower.cli.errors import CommandFailed
from tower.cli.streams import Forwarder
from tower.net.connecting import ConnectFailed
from tower.streamclient import OPEN_TIMEOUT, FrontDoorAddress

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
        self.dialled: list[Deferred[Any]] = []
        self.failure: Exception | None = None
        clock: Any = self.clock
        self.forwarder = Forwarder(self.address, self.dial, self.said.append, clock)

    def address(self) -> Deferred[FrontDoorAddress]:
        """Return the front door's address, or fail."""
        return succeed(ADDRESS) if self.failure is None else fail(self.failure)

    def dial(self, address: FrontDoorAddress) -> Deferred[Any]:
        """Return a connection that the test completes."""
        self.assertIs(address, ADDRESS)
        self.dialled.append(Deferred())
        return self.dialled[-1]

    def accept(self) -> FakePipe:
        """Return a new local connection."""
        pipe = FakePipe()
        pipe.receiver = self.forwarder.accept(pipe)
        pipe.resume()
        return pipe

    def open(self, local: FakePipe, answer: bytes = SWITCHED) -> FakePipe:
        """Answer the newest stream as the proxy."""
        stream = FakePipe()
        self.dialled[-1].callback(stream)
        self.assertEqual(stream.taken(), ADDRESS.request)
        stream.deliver(answer)
        return stream

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
        self.dialled[0].errback(ConnectFailed("refused", "127.0.0.1:8443: connection refused"))
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
        self.dialled[0].callback(stream)
        self.clock.advance(OPEN_TIMEOUT)
        self.assertEqual(self.said, [f"the proxy did not open the stream within {OPEN_TIMEOUT:g} s"])
        self.assertTrue(local.aborted and stream.aborted)

    def test_gone_before_dialled(self) -> None:
        """A client that disconnects cancels the dial, without a report."""
        local = self.accept()
        local.lose()
        self.assertEqual(self.said, [])
        self.assertTrue(self.dialled[0].called)

    def test_gone_before_open(self) -> None:
        """A client that disconnects cancels the opening of the stream, without a report."""
        local = self.accept()
        stream = FakePipe()
        self.dialled[0].callback(stream)
        local.lose()
        self.assertEqual((self.said, stream.aborted), ([], True))
        self.assertEqual(self.clock.getDelayedCalls(), [])
