"""Tests of `tower.http.response_heads`, with Twisted's HTTP client on pipes in memory."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseFailed
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse

from tests.fakes.pipes import FakePipe
from tower.http.client_bodies import cause_of, read_body
from tower.http.pipe_agent import PipeAgent
from tower.http.response_heads import LIMIT, HeadTooLarge
from tower.net.pipes import Pipe

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"
#: A field of 1 KiB.
FIELD = b"X-More: " + b"a" * 1014 + b"\r\n"


class LimitedHeadsTests(SynchronousTestCase):
    """Requests to a server that keeps connections."""

    def setUp(self) -> None:
        """Make the client."""
        self.pipes: list[FakePipe] = []
        self.agent = PipeAgent(Clock(), self.open, kept=1)
        self.addCleanup(self.agent.close)

    async def open(self) -> Pipe:
        """Return a new pipe."""
        pipe = FakePipe()
        self.pipes.append(pipe)
        return pipe

    def ask(self, body: bytes | None = None) -> Deferred[IResponse]:
        """Send a request."""
        return self.agent.request(b"POST" if body else b"GET", b"/", Headers(), body)

    def read(self, asking: Deferred[IResponse], body: bytes) -> bytes:
        """Send the body of a response; return what the client received."""
        reading = read_body(self.successResultOf(asking), len(body))
        self.pipes[-1].deliver(body)
        return self.successResultOf(reading)

    def refused(self, asking: Deferred[IResponse]) -> None:
        """Check that a request failed because of the head, and its connection was closed."""
        cause = cause_of(self.failureResultOf(asking, ResponseFailed).value)
        self.assertIsInstance(cause, HeadTooLarge)
        self.assertEqual(str(cause), f"the head of the response has more than {LIMIT} B")
        self.assertTrue(self.pipes[-1].lost)

    def fields(self, count: int) -> None:
        """Send fields of 1 KiB each, some at once."""
        for _ in range(count // 8):
            self.pipes[-1].deliver(FIELD * 8)

    def test_large(self) -> None:
        """A head within the limit arrives, and a body after it may be larger."""
        asking = self.ask()
        self.pipes[-1].deliver(HEAD % (2 * LIMIT))
        self.fields(LIMIT // 1024 - 8)
        self.pipes[-1].deliver(b"\r\n")
        self.assertEqual(self.read(asking, b"b" * (2 * LIMIT)), b"b" * (2 * LIMIT))

    def test_too_large(self) -> None:
        """A head beyond the limit fails the request before its end."""
        asking = self.ask()
        self.pipes[-1].deliver(HEAD % 2)
        self.fields(LIMIT // 1024)
        self.refused(asking)
        self.fields(8)

    def test_interim(self) -> None:
        """The heads of interim responses count, too."""
        asking = self.ask()
        for _ in range(LIMIT // 1024 + 1):
            if not self.pipes[-1].lost:
                self.pipes[-1].deliver(b"HTTP/1.1 100 Continue\r\n" + FIELD + b"\r\n")
        self.refused(asking)

    def test_next(self) -> None:
        """Each response of a kept connection has the whole limit, and no more."""
        for body in (None, b"request"):
            asking = self.ask(body)
            self.pipes[-1].deliver(HEAD % 2)
            self.fields(LIMIT // 1024 - 8)
            self.pipes[-1].deliver(b"\r\n")
            self.assertEqual(self.read(asking, b"ok"), b"ok")
        asking = self.ask()
        self.assertEqual(len(self.pipes), 1)
        self.pipes[-1].deliver(HEAD % 2)
        self.fields(LIMIT // 1024)
        self.refused(asking)
