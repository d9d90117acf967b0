"""Tests for `tower.streamclient`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tower.errors import ConfigurationError
from tower.kube.kubeconfig import KubeAccess
from tower.streamclient import (
    HEAD_LIMIT,
    OPEN_TIMEOUT,
    FrontDoorAddress,
    Opening,
    StreamNotOpened,
    open_stream,
    upgrade_request,
)

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tower-stream\r\n\r\n"
STATUS = json.dumps({"kind": "Status", "message": "the agent has no target pg"}).encode()
REFUSED = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(STATUS) + STATUS
WAY = FrontDoorAddress("127.0.0.1", 8443, None, "127.0.0.1", b"GET x\r\n\r\n")


class OpeningTests(SynchronousTestCase):
    """The answer to the upgrade."""

    def setUp(self) -> None:
        """Start to open a stream."""
        self.pipe = FakePipe()
        self.opened: list[bytes] = []
        self.failed: list[str] = []
        self.pipe.receiver = Opening(self.pipe, self.opened.append, self.failed.append)
        self.pipe.resume()

    def test_any_split(self) -> None:
        """However the answer is cut, the stream opens with what followed it, or fails with the reason."""
        for answer, opened, failed in (
            (SWITCHED, [b""], []),
            (REFUSED, [], ["the agent has no target pg"]),
        ):
            for step in range(1, len(answer) + 1):
                self.setUp()
                for start in range(0, len(answer), step):
                    self.pipe.deliver(answer[start : start + step])
                self.assertEqual((self.opened, self.failed), (opened, failed))
                self.assertEqual(self.pipe.aborted, bool(failed))

    def test_leftover(self) -> None:
        """The bytes after the response belong to the stream."""
        self.pipe.deliver(SWITCHED + b"220 ready")
        self.assertEqual(self.opened, [b"220 ready"])
        self.assertTrue(self.pipe.paused)

    def test_no_status(self) -> None:
        """Without a Status, the error has the status line."""
        self.pipe.deliver(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")
        self.assertEqual(self.failed, [])
        self.pipe.end()
        self.assertEqual(self.failed, ["the proxy answered 'HTTP/1.1 502 Bad Gateway'"])

    def test_too_long(self) -> None:
        """Neither head nor body is collected without end."""
        self.pipe.deliver(b"x" * (HEAD_LIMIT + 1))
        self.assertIn("too long", self.failed[0])
        self.setUp()
        self.pipe.deliver(b"HTTP/1.1 500 Oops\r\n\r\n" + b"{" * (64 << 10))
        self.pipe.deliver(b"{")
        self.assertEqual(self.failed, ["the proxy answered 'HTTP/1.1 500 Oops'"])

    def test_disconnected(self) -> None:
        """A proxy's disconnection is reported once."""
        self.pipe.lose(ConnectionError("reset"))
        self.assertEqual(self.failed, ["the proxy closed the connection: reset"])


class RequestTests(SynchronousTestCase):
    """The head of the request for a stream."""

    def test_target(self) -> None:
        """A target is one segment of the path, with any characters."""
        head = upgrade_request(KubeAccess("https://h:1/clusters/alpha"), "/clusters/alpha", "a/b c")
        self.assertTrue(head.startswith(b"GET /clusters/alpha/targets/a%2Fb%20c HTTP/1.1\r\nHost: h:1\r\n"))
        self.assertTrue(head.endswith(b"\r\n\r\n"))

    def test_no_injection(self) -> None:
        """Nothing in a kubeconfig adds lines; the token is not shown."""
        for access in (
            KubeAccess("https://h:1", token="secret\r\nImpersonate-User: root"),
            KubeAccess("https://h:1", token="s\u00e9cret"),
            KubeAccess("https://h\u00e9:1", token="secret"),
        ):
            error = str(
                self.assertRaises(ConfigurationError, upgrade_request, access, "/clusters/alpha", "pg")
            )
            self.assertIn("printable", error)
            self.assertNotIn("cret", error)


class OpenStreamTests(SynchronousTestCase):
    """A connection becomes a stream."""

    def setUp(self) -> None:
        """Send the request."""
        self.clock = Clock()
        self.pipe = FakePipe()
        clock: Any = self.clock
        self.opening: Deferred[bytes] = open_stream(self.pipe, WAY, clock)

    def test_opened(self) -> None:
        """The request goes out; the answer opens, and no timer is left."""
        self.assertEqual(self.pipe.taken(), WAY.request)
        self.pipe.deliver(SWITCHED + b"hello")
        self.assertEqual(self.successResultOf(self.opening), b"hello")
        self.assertTrue(self.pipe.paused)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_refused(self) -> None:
        """The error of a refusal has the proxy's reason."""
        self.pipe.deliver(REFUSED)
        error = self.failureResultOf(self.opening, StreamNotOpened)
        self.assertEqual(error.getErrorMessage(), "the agent has no target pg")
        self.assertTrue(self.pipe.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_too_late(self) -> None:
        """A silent proxy is waited for no longer than that."""
        self.clock.advance(OPEN_TIMEOUT)
        error = self.failureResultOf(self.opening, StreamNotOpened)
        self.assertEqual(
            error.getErrorMessage(), f"the proxy did not open the stream within {OPEN_TIMEOUT:g} s"
        )
        self.assertTrue(self.pipe.aborted)

    def test_cancelled(self) -> None:
        """Cancelling leaves nothing."""
        self.opening.cancel()
        self.failureResultOf(self.opening, CancelledError)
        self.assertTrue(self.pipe.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_broken_at_once(self) -> None:
        """A connection that breaks during the request is reported, and nothing is left."""
        pipe = BreakingPipe()
        clock: Any = self.clock
        opening = open_stream(pipe, WAY, clock)
        self.failureResultOf(opening, StreamNotOpened)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)  # the other one's
        self.opening.cancel()
        self.failureResultOf(self.opening)


class BreakingPipe(FakePipe):
    """Breaks when something is sent."""

    def send(self, data: Any) -> bool:
        """Break."""
        self.lose(ConnectionError("reset"))
        return False
