"""Tests of `tower.kube.client`: Twisted's client against Twisted's server, over a pipe in memory."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.apiservers import Member
from tower.errors import Invalid, StreamRefused
from tower.escaping import PEER_TEXT_LIMIT
from tower.kube.client import PAGE_SIZE, APIClient, APIError
from tower.kube.head_fields import Upstream
from tower.net.pipes import Pipe

NODES = "/api/v1/nodes"
UPSTREAM = Upstream(b"/k8s", b"Host: api.beta:6443\r\n", b"Authorization: Bearer sesame\r\n")


class APIClientCase(SynchronousTestCase):
    """A test case with a client and a member."""

    def setUp(self) -> None:
        """Create a member and a client."""
        self.member = Member()
        self.api = self.make()

    def make(self, **options: Any) -> APIClient:
        """Return what is tested."""
        return APIClient(self.member.clock, self.member.open, lambda: UPSTREAM, **options)

    def ask(self, asking: Any) -> Deferred[Any]:
        """Ask, and have it answered."""
        result: Deferred[Any] = Deferred.fromCoroutine(asking)
        self.member.serve()
        return result

    def fails(self, asking: Any) -> APIError:
        """Ask, and return how that failed."""
        error = self.failureResultOf(self.ask(asking), APIError).value
        assert isinstance(error, APIError)
        self.assertNotIn("sesame", repr(error) + str(error))
        return error


class APIClientTests(APIClientCase):
    """Questions and answers."""

    def test_get(self) -> None:
        """A question carries the credential, the prefix and the server's own name."""
        self.member.answer = lambda _: (200, b'{"kind": "Node"}')
        value = self.successResultOf(self.ask(self.api.get(NODES + "/n1")))
        (request,) = self.member.requests
        self.assertEqual(value, {"kind": "Node"})
        self.assertEqual((request.method, request.uri), (b"GET", b"/k8s/api/v1/nodes/n1"))
        self.assertEqual(request.getHeader(b"authorization"), b"Bearer sesame")
        self.assertEqual(request.requestHeaders.getRawHeaders(b"host"), [b"api.beta:6443"])
        self.assertIsNone(request.getHeader(b"impersonate-user"))

    def test_patch(self) -> None:
        """A patch is a JSON merge patch; its answer is the changed object."""
        bodies: list[Any] = []

        def answer(request: Any) -> tuple[int, bytes]:
            bodies.append(json.loads(request.content.read()))
            return 200, b'{"kind": "Secret"}'

        self.member.answer = answer
        value = self.successResultOf(self.ask(self.api.patch("/api/v1/x", {"data": {"a": None}})))
        (request,) = self.member.requests
        self.assertEqual(value, {"kind": "Secret"})
        self.assertEqual(request.method, b"PATCH")
        self.assertEqual(request.getHeader(b"content-type"), b"application/merge-patch+json")
        self.assertEqual(bodies, [{"data": {"a": None}}])

    def test_connection_is_kept(self) -> None:
        """A second question soon after uses the same connection, a late one another."""
        self.ask(self.api.get(NODES))
        self.ask(self.api.get(NODES))
        self.assertEqual(len(self.member.pipes), 1)
        self.member.clock.advance(6)
        self.assertTrue(self.member.pipes[0].closing)
        self.ask(self.api.get(NODES))
        self.assertEqual(len(self.member.pipes), 2)

    def test_not_persistent(self) -> None:
        """A client without persistent connections opens one per request."""
        api = self.make(persistent=False)
        self.ask(api.get(NODES))
        self.ask(api.get(NODES))
        self.assertEqual([pipe.lost for pipe in self.member.pipes], [True, True])

    def test_close(self) -> None:
        """Closing leaves no connection behind."""
        self.ask(self.api.get(NODES))
        self.api.close()
        self.assertTrue(self.member.pipes[0].lost)
        self.assertEqual(self.member.clock.getDelayedCalls(), [])

    def test_post_impersonated(self) -> None:
        """A request for a user has impersonation fields for user and groups, and the credential."""
        self.member.answer = lambda request: (201, request.content.read())  # type: ignore[union-attr]
        asking = self.api.post("/apis/x", {"a": "ü"}, user="jane", groups=("dev", "ops"))
        self.assertEqual(self.successResultOf(self.ask(asking)), {"a": "ü"})
        (request,) = self.member.requests
        headers = request.requestHeaders
        self.assertEqual(headers.getRawHeaders(b"impersonate-user"), [b"jane"])
        self.assertEqual(headers.getRawHeaders(b"impersonate-group"), [b"dev", b"ops"])
        self.assertEqual(headers.getRawHeaders(b"authorization"), [b"Bearer sesame"])
        self.assertEqual(request.getHeader(b"content-type"), b"application/json")

    def test_names_cannot_break_out(self) -> None:
        """A name that would end its field is refused before anything is sent."""
        asking = self.api.post("/apis/x", {}, user="jane\r\nX: y")
        self.failureResultOf(self.ask(asking), Invalid)
        self.assertEqual(self.member.pipes, [])

    def test_status(self) -> None:
        """An error has method, path without query, status and the Status's message."""
        status = {"kind": "Status", "message": 'nodes is forbidden: User "x" cannot list resource "nodes"'}
        self.member.answer = lambda _: (403, json.dumps(status).encode())
        error = self.fails(self.api.get(NODES + "?limit=1"))
        self.assertEqual((error.method, error.path, error.code), ("GET", NODES, 403))
        self.assertEqual(
            str(error),
            'GET /api/v1/nodes: answered 403: the API server reports: "nodes is forbidden: '
            r'User \"x\" cannot list resource \"nodes\""',
        )

    def test_reason(self) -> None:
        """An error has the Status's reason, and the delay of Retry-After."""
        delay = b""

        def answer(request: Any) -> tuple[int, bytes]:
            request.setHeader(b"retry-after", delay)
            return 429, json.dumps({"reason": "TooManyRequests", "message": "wait"}).encode()

        self.member.answer = answer
        for value, seconds in ((b"7", 7.0), (b"Sun, 22 Nov 2026 21:00:00 GMT", 0), (b"9" * 40, 0)):
            delay = value
            error = self.fails(self.api.get(NODES))
            self.assertEqual((error.reason, error.retry_after), ("TooManyRequests", seconds))

    def test_status_for_terminals(self) -> None:
        """Control characters in a Status are escaped."""
        self.member.answer = lambda _: (500, json.dumps({"message": "\x1b]0;root\x07no"}).encode())
        self.assertEqual(
            self.fails(self.api.get(NODES)).message, r'the API server reports: "\u001b]0;root\u0007no"'
        )

    def test_failure_without_status(self) -> None:
        """An answer that is not a Status is quoted, shortened and escaped."""
        self.member.answer = lambda _: (502, b"\x1b[31mBad Gateway\n" + b"x" * 1000)
        error = self.fails(self.api.get(NODES))
        said = error.message.removeprefix('the API server reports: "').removesuffix('"')
        self.assertTrue(said.startswith(r"\u001b[31mBad Gateway\nxxx"), error.message)
        self.assertEqual(len(said), PEER_TEXT_LIMIT)

    def test_empty(self) -> None:
        """An answer without an object is an error."""
        self.member.answer = lambda _: (200, b"")
        self.assertEqual(
            str(self.fails(self.api.get(NODES))), "GET /api/v1/nodes: answered 200: an empty body"
        )

    def test_date(self) -> None:
        """An answer has the server's date, and the request has the name of the program."""

        def answer(request: Any) -> tuple[int, bytes]:
            request.setHeader(b"date", b"Sun, 22 Nov 2026 21:00:00 GMT")
            return 200, request.getHeader(b"user-agent")

        self.member.answer = answer
        api = self.make(program=b"tower-agent")
        got = self.successResultOf(self.ask(api.request("GET", "/version")))
        self.assertEqual((got.date, got.body), ("Sun, 22 Nov 2026 21:00:00 GMT", b"tower-agent"))
        got = self.successResultOf(self.ask(self.api.request("GET", "/version")))
        self.assertEqual(got.body, b"tower-proxy")

    def test_ask(self) -> None:
        """`request` returns answers with any status."""
        self.member.answer = lambda _: (500, b"[-]etcd failed")
        answer = self.successResultOf(self.ask(self.api.request("GET", "/readyz")))
        self.assertEqual((answer.code, answer.body), (500, b"[-]etcd failed"))

    def test_no_pipe(self) -> None:
        """The error names the reason why no pipe was opened."""

        async def refuse() -> Pipe:
            raise StreamRefused("refused", "connect failed")

        api = APIClient(self.member.clock, refuse, lambda: UPSTREAM)
        self.assertEqual(str(self.fails(api.get(NODES))), "GET /api/v1/nodes: no answer: connect failed")

    def test_too_late(self) -> None:
        """A missing answer times out, and its connection is closed."""
        asking = Deferred.fromCoroutine(self.api.get(NODES))
        self.member.clock.advance(14.9)
        self.assertNoResult(asking)
        self.member.clock.advance(0.2)
        error = self.failureResultOf(asking, APIError).value
        self.assertEqual(str(error), "GET /api/v1/nodes: no answer: it took longer than 15 s")
        self.assertTrue(self.member.pipes[0].lost)

    def test_too_late_again(self) -> None:
        """A second request on the same connection times out as well, and is not sent again."""
        self.ask(self.api.get(NODES))
        asking = Deferred.fromCoroutine(self.api.get(NODES))
        self.member.clock.advance(15)
        error = self.failureResultOf(asking, APIError).value
        self.assertIn("longer than 15 s", str(error))
        self.assertEqual([pipe.lost for pipe in self.member.pipes], [True])

    def test_cancelled(self) -> None:
        """A cancelled request leaves nothing open."""
        self.ask(self.api.get(NODES))
        asking = Deferred.fromCoroutine(self.api.get(NODES))
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        self.assertEqual([pipe.lost for pipe in self.member.pipes], [True])
        self.assertEqual(self.member.clock.getDelayedCalls(), [])

    def test_too_late_while_opening(self) -> None:
        """Opening the pipe counts, and is given up."""
        given_up = []

        def never() -> Awaitable[Pipe]:
            return Deferred(lambda _: given_up.append(True))

        asking = Deferred.fromCoroutine(APIClient(self.member.clock, never, lambda: UPSTREAM).get(NODES))
        self.member.clock.advance(15)
        self.failureResultOf(asking, APIError)
        self.assertEqual(given_up, [True])

    def test_too_late_in_the_body(self) -> None:
        """A body that stops is not waited for longer."""
        asking = Deferred.fromCoroutine(self.api.get(NODES))
        (pipe,) = self.member.pipes
        pipe.deliver(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
        self.assertNoResult(asking)
        self.member.clock.advance(15)
        self.failureResultOf(asking, APIError)
        self.assertTrue(pipe.lost)

    def test_too_long(self) -> None:
        """An answer that is too long is not kept, and its connection not used again."""
        self.member.answer = lambda _: (200, b"x" * 101)
        error = self.fails(self.make(limit=100).get(NODES))
        self.assertEqual(error.message, "the response has more than 100 B")
        self.assertTrue(self.member.pipes[0].lost)

    def test_cut(self) -> None:
        """A connection that breaks in the answer is a failure with a reason."""
        asking = Deferred.fromCoroutine(self.api.get(NODES))
        (pipe,) = self.member.pipes
        pipe.deliver(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
        pipe.lose(ConnectionError("the tunnel was closed"))
        error = self.failureResultOf(asking, APIError).value
        self.assertIn("the tunnel was closed", str(error))

    def test_no_http(self) -> None:
        """An answer that is not HTTP is an error."""
        asking = Deferred.fromCoroutine(self.api.get(NODES))
        self.member.pipes[0].deliver(b"SSH-2.0-x\r\n\r\n")
        self.failureResultOf(asking, APIError)

    def test_repeated(self) -> None:
        """A repeatable request is retried if its kept connection was closed."""
        self.ask(self.api.post("/apis/x", {}))
        asking = Deferred.fromCoroutine(self.api.post("/apis/x", {}, repeatable=True))
        self.member.pipes[0].lose()
        self.member.serve()
        self.assertEqual(self.successResultOf(asking), {})
        self.assertEqual(len(self.member.pipes), 2)

    def test_not_repeated(self) -> None:
        """A request that may change something is sent once."""
        self.ask(self.api.post("/apis/x", {}))
        asking = Deferred.fromCoroutine(self.api.post("/apis/x", {}))
        self.member.pipes[0].lose()
        self.failureResultOf(asking, APIError)
        self.assertEqual(len(self.member.pipes), 1)


class ItemsTests(APIClientCase):
    """Lists in pages."""

    def page(self, items: list[int], rest: str = "") -> bytes:
        """Return one page."""
        return json.dumps({"metadata": {"continue": rest} if rest else {}, "items": items}).encode()

    def test_pages(self) -> None:
        """All pages of a list are read."""
        pages = [self.page([1, 2], "a=/b"), self.page([3])]
        self.member.answer = lambda _: (200, pages.pop(0))
        self.assertEqual(self.successResultOf(self.ask(self.api.items(NODES))), [1, 2, 3])
        limit = b"/k8s/api/v1/nodes?limit=%d" % PAGE_SIZE
        self.assertEqual([r.uri for r in self.member.requests], [limit, limit + b"&continue=a%3D%2Fb"])

    def test_selected(self) -> None:
        """A query of the caller's stays."""
        self.member.answer = lambda _: (200, self.page([]))
        self.assertEqual(self.successResultOf(self.ask(self.api.items(NODES + "?a=b"))), [])
        self.assertEqual(self.member.requests[0].uri, b"/k8s/api/v1/nodes?a=b&limit=500")

    def test_expired(self) -> None:
        """A list that expires between two pages is read again from the start."""
        answers = [
            (200, self.page([1], "x")),
            (410, b"{}"),
            (200, self.page([1], "y")),
            (200, self.page([2])),
        ]
        self.member.answer = lambda _: answers.pop(0)
        self.assertEqual(self.successResultOf(self.ask(self.api.items(NODES))), [1, 2])

    def test_expires_for_ever(self) -> None:
        """A list that expires again is a failure."""
        self.member.answer = lambda request: (
            (410, b"{}") if b"cont" in request.uri else (200, self.page([1], "x"))
        )
        self.assertEqual(self.fails(self.api.items(NODES)).code, 410)

    def test_no_list(self) -> None:
        """An answer that is not a list is an error."""
        self.member.answer = lambda _: (200, b"{}")
        self.assertEqual(self.fails(self.api.items(NODES)).message, "not a list")

    def test_endless(self) -> None:
        """A server that always has another page is not asked endlessly."""
        self.member.answer = lambda _: (200, self.page([], "again"))
        self.assertIn("endless list", self.fails(self.api.items(NODES)).message)
