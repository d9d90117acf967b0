"""Tests of `tower.cloud.http.exchange`: treq's changes of requests, which clouds do not see."""

from __future__ import annotations

import gzip
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent
from zope.interface import implementer

from tower.cloud.http.answer import Answer
from tower.cloud.http.exchange import CloudRequest, send

CLOCK: Any = Clock()

#: URLs whose spelling a signature covers, and that treq sends otherwise.
CHANGED = (
    "http://cloud.example:80/",
    "http://Cloud.example/",
    "http://cloud.example/a?filter=[b]",
    "http://cloud.example/a|b",
)


class Response:
    """A response with a body.

    :ivar length: unknown, as of a body in chunks.
    """

    code = 200
    length: Any = UNKNOWN_LENGTH

    def __init__(self, body: bytes, **fields: str) -> None:
        self.headers = Headers({name.replace("_", "-"): [value] for name, value in fields.items()})
        self.body = body

    def deliverBody(self, protocol: Any) -> None:
        """Deliver the whole body."""
        protocol.dataReceived(self.body)
        protocol.connectionLost(Failure(ResponseDone()))


@implementer(IAgent)
class Recorder:
    """Records requests and returns one response.

    :ivar sent: method, URL and header fields.
    """

    def __init__(self, response: Response) -> None:
        self.response = response
        self.sent: list[tuple[bytes, bytes, Headers]] = []

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        """Record a request."""
        self.sent.append((method, uri, headers))
        return succeed(self.response)


class ExchangeTests(SynchronousTestCase):
    """Requests through treq."""

    def exchange(self, url: str, response: Response, **headers: str) -> tuple[Answer, Recorder]:
        """Send a request; return its answer and what the agent got."""
        agent = Recorder(response)
        sending = send(Clock(), agent, CloudRequest("GET", url, headers), 5.0)
        return self.successResultOf(Deferred.fromCoroutine(sending)), agent

    def test_url(self) -> None:
        """URLs are sent byte for byte as they were signed; treq alone encodes these again."""
        for url in CHANGED:
            _, agent = self.exchange(url, Response(b""))
            self.assertEqual([url.encode()], [uri for _, uri, _ in agent.sent])
            bare = Recorder(Response(b""))
            self.successResultOf(HTTPClient(bare).get(url, reactor=CLOCK))
            self.assertNotEqual(url.encode(), bare.sent[0][1])

    def test_ipv6(self) -> None:
        """A URL may have an IPv6 address, as of EC2's metadata service; treq alone rejects it."""
        url = "http://[fd00:ec2::254]/latest/"
        _, agent = self.exchange(url, Response(b""))
        self.assertEqual(url.encode(), agent.sent[0][1])
        with self.assertRaises(ValueError):
            HTTPClient(Recorder(Response(b""))).get(url, reactor=CLOCK)

    def test_headers(self) -> None:
        """A request has its own header fields and the name of the client, and nothing of treq's."""
        _, agent = self.exchange("http://cloud.example/", Response(b""), authorization="AWS4 x")
        names = {name.lower() for name, _ in agent.sent[0][2].getAllRawHeaders()}
        self.assertEqual({b"authorization", b"user-agent"}, names)

    def test_compressed(self) -> None:
        """A compressed body is not decoded, so the limit holds for memory; treq alone decodes it."""
        body = gzip.compress(b"x" * 100_000)
        answer, _ = self.exchange("http://cloud.example/", Response(body, content_encoding="gzip"))
        self.assertEqual(body, answer.body)
        bare = HTTPClient(Recorder(Response(body, content_encoding="gzip")))
        response = self.successResultOf(bare.get("http://cloud.example/", reactor=CLOCK))
        self.assertEqual(b"x" * 100_000, self.successResultOf(response.content()))

    def test_cookies(self) -> None:
        """A cookie of a response is not sent with the next request."""
        agent = Recorder(Response(b"", set_cookie="a=b; Path=/"))
        for _ in range(2):
            sending = send(Clock(), agent, CloudRequest("GET", "http://cloud.example/"), 5.0)
            self.successResultOf(Deferred.fromCoroutine(sending))
        self.assertFalse(agent.sent[1][2].hasHeader("cookie"))
