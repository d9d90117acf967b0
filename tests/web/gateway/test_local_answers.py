"""Tests for `tower.web.gateway.local_answers` and `tower.web.gateway.request`: answers made by Tower."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get
from tower.kube.status import request_id_lines
from tower.web.gateway.received_request import DISCARD_LIMIT
from tower.web.gateway.request import Request
from tower.web.outcome import BodyStream, Outcome, Response, StreamingResponse

DATE = b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"


class ResponseTests(SynchronousTestCase):
    """Complete answers."""

    def test_answer(self) -> None:
        """Status, fields, date, length and request ID; the connection is kept."""
        kit = Kit(lambda request: Response(201, b"{}"))
        kit.user.deliver(get())
        self.assertEqual(
            kit.user.taken(),
            b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
            + DATE
            + b"Content-Length: 2\r\n"
            + request_id_lines(kit.requests[0].request_id)
            + b"\r\n{}",
        )
        self.assertFalse(kit.user.closing)

    def test_head(self) -> None:
        """The answer to a HEAD is the head of the answer."""
        kit = Kit(lambda request: Response.of_json({"a": 1}))
        kit.user.deliver(get(method=b"HEAD"))
        answer = kit.user.taken()
        self.assertIn(b"\r\nContent-Length: 8\r\n", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\n"))

    def test_close(self) -> None:
        """A connection closes if the client requests it, or with HTTP/1.0."""
        for wire in (get(b"/", b"Connection: close"), b"GET / HTTP/1.0\r\n\r\n"):
            kit = Kit(lambda request: Response(200))
            kit.user.deliver(wire)
            self.assertIn(b"\r\nConnection: close\r\n", kit.user.taken())
            self.assertTrue(kit.user.closing)

    def test_unread_body(self) -> None:
        """A short unread body is discarded after the answer; the next request is served."""
        kit = Kit(lambda request: Response(200))
        kit.user.deliver(get(b"/", b"Content-Length: 9", method=b"POST", body=b"abc"))
        self.assertNotIn(b"Connection: close", kit.user.taken())
        kit.user.deliver(b"GET /")
        self.assertEqual((len(kit.requests), kit.user.taken()), (1, b""))
        kit.user.deliver(b"d" + get())
        self.assertEqual(len(kit.requests), 2)
        self.assertIn(b" 200 ", kit.user.taken())
        self.assertFalse(kit.user.closing)

    def test_long_unread_body(self) -> None:
        """With any other unread body the connection closes, whether or not the body has arrived."""
        long = DISCARD_LIMIT + 1
        for fields, body in (
            ((b"Content-Length: %d" % long,), bytes(long)),
            ((b"Transfer-Encoding: chunked",), b"3\r\nabc\r\n0\r\n\r\n"),
            ((b"Content-Length: 3", b"Expect: 100-continue"), b"abc"),
        ):
            for come in (b"", body[:2], body):
                kit = Kit(lambda request: Response(200))
                kit.user.deliver(get(b"/", *fields, method=b"POST", body=come))
                self.assertIn(b"\r\nConnection: close\r\n", kit.user.taken())
                self.assertTrue(kit.user.closing)

    def test_unread_body_never_comes(self) -> None:
        """A body that is discarded, but does not arrive in time, closes the connection."""
        kit = Kit(lambda request: Response(200))
        kit.user.deliver(get(b"/", b"Content-Length: 900", method=b"POST"))
        for _ in range(int(kit.gateway.limits.head)):
            kit.sweep(1)
            kit.user.deliver(b"x")
        self.assertFalse(kit.user.closing)
        kit.sweep(1)
        self.assertTrue(kit.user.closing)

    def test_unread_body_of_somebody_revoked(self) -> None:
        """The end of a credential ends a connection whose body is being discarded."""
        kit = Kit()
        claim = (b"Impersonate-User: root", b"Content-Length: 9")
        kit.user.deliver(get(b"/clusters/alpha/x", *claim, method=b"POST"))
        self.assertIn(b" 403 ", kit.user.taken())
        self.assertFalse(kit.user.closing)
        (session,) = kit.sessions.inside
        session[2]("revoked")
        self.assertTrue(kit.user.lost)

    def test_no_verdict(self) -> None:
        """A router that does not answer in time is a 504, and is cancelled."""
        verdict: Deferred[Outcome] = Deferred()
        kit = Kit(lambda request: verdict)
        kit.user.deliver(get())
        kit.sweep(121)
        self.assertIn(b" 504 ", kit.user.taken())
        self.assertTrue(verdict.called)


class BodyTests(SynchronousTestCase):
    """Bodies that Tower reads."""

    def setUp(self) -> None:
        """Answer with the body."""
        self.kit = Kit(self.echo)
        self.user = self.kit.user

    def echo(self, request: Request) -> Any:
        """Answer with the body."""
        return request.body(limit=20).addCallback(lambda body: Response(200, body))

    def test_with_the_head(self) -> None:
        """A body that arrived with the head."""
        self.user.deliver(get(b"/", b"Content-Length: 3", method=b"POST", body=b"abc") + get())
        self.kit.take_turns()
        answers = self.user.taken()
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 2)
        self.assertIn(b"\r\n\r\nabcHTTP", answers)

    def test_gone_at_once(self) -> None:
        """A router that waits for the body is notified if the user disconnects during the 100 Continue."""
        bodies: list[Deferred[bytes]] = []

        def take(request: Request) -> Any:
            bodies.append(request.body())
            return bodies[0].addCallback(lambda body: Response(200, body))

        kit = Kit(take)
        kit.user.send = lambda data: kit.user.lose() or False  # type: ignore[method-assign,func-returns-value]
        kit.user.deliver(get(b"/", b"Content-Length: 3", b"Expect: 100-continue", method=b"POST"))
        self.assertTrue(kit.user.lost)
        self.assertTrue(bodies[0].called)

    def test_in_pieces(self) -> None:
        """A fragmented body, chunked or not."""
        chunked = b"3\r\nabc\r\n0\r\n\r\n"
        for head, body in (
            (get(b"/", b"Content-Length: 3", method=b"POST"), b"abc"),
            (get(b"/", b"Transfer-Encoding: chunked", method=b"POST"), chunked),
        ):
            for cut in range(len(body)):
                kit = Kit(self.echo)
                kit.user.deliver(head + body[:cut])
                self.assertFalse(kit.user.paused)
                kit.user.deliver(body[cut:])
                self.assertTrue(kit.user.taken().endswith(b"\r\n\r\nabc"))
                self.assertFalse(kit.user.closing)

    def test_too_long(self) -> None:
        """A body beyond the limit is a 413, at once."""
        self.user.deliver(get(b"/", b"Content-Length: 30", method=b"POST", body=b"a" * 21))
        self.assertIn(b" 413 ", self.user.taken())
        self.assertTrue(self.user.closing)

    def test_declared_too_long(self) -> None:
        """A declared length beyond the limit is a 413 before the body, also instead of 100 Continue."""
        for expect in ((), (b"Expect: 100-continue",)):
            kit = Kit(self.echo)
            kit.user.deliver(get(b"/", b"Content-Length: 30", *expect, method=b"POST"))
            self.assertTrue(kit.user.taken().startswith(b"HTTP/1.1 413 "))
            self.assertTrue(kit.user.closing)

    def test_continue(self) -> None:
        """A client that expects 100 Continue gets it when the body is read."""
        self.user.deliver(get(b"/", b"Content-Length: 3", b"Expect: 100-continue", method=b"POST"))
        self.assertEqual(self.user.taken(), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.user.deliver(b"abc")
        self.assertTrue(self.user.taken().endswith(b"\r\n\r\nabc"))

    def test_slow(self) -> None:
        """A body that does not arrive in time is a 408."""
        self.user.deliver(get(b"/", b"Content-Length: 3", method=b"POST"))
        self.kit.sweep(31)
        self.assertIn(b" 408 ", self.user.taken())
        self.assertTrue(self.user.closing)

    def test_router_that_goes_on(self) -> None:
        """A router may answer although the body is too long; the rest of the body is discarded."""
        verdict: Deferred[Outcome] = Deferred()

        def router(request: Request) -> Any:
            return request.body(limit=2).addErrback(lambda failure: verdict)

        kit = Kit(router)
        kit.user.deliver(get(b"/", b"Content-Length: 5", method=b"POST", body=b"abc"))
        kit.user.deliver(b"de")
        verdict.callback(Response(200, b"never mind"))
        self.assertTrue(kit.user.taken().endswith(b"never mind"))

    def test_router_that_never_answers(self) -> None:
        """A router that has the body and does not answer in time is a 504."""
        kit = Kit(lambda request: request.body().addCallback(lambda body: Deferred()))
        kit.user.deliver(get(b"/", b"Content-Length: 1", method=b"POST", body=b"a"))
        kit.sweep(121)
        self.assertIn(b" 504 ", kit.user.taken())

    def test_mistake_after_the_user_has_gone(self) -> None:
        """A router that fails after its client disconnected is logged."""
        verdict: Deferred[Outcome] = Deferred(lambda verdict: verdict.errback(ZeroDivisionError()))
        kit = Kit(lambda request: verdict)
        kit.user.deliver(get(b"/a?b=c"))
        self.assertEqual((kit.requests[0].path, kit.requests[0].query), (b"/a", b"b=c"))
        kit.user.lose()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_gone(self) -> None:
        """A disconnect before the end of the body ends the reading."""
        self.user.deliver(get(b"/", b"Content-Length: 3", method=b"POST"))
        self.user.lose()
        self.assertEqual(self.kit.gateway.connections, 0)


class StreamTests(SynchronousTestCase):
    """Streamed answers."""

    def setUp(self) -> None:
        """Answer with a stream."""
        self.streams: list[BodyStream] = []
        self.kit = Kit(self.watch)
        self.user = self.kit.user

    def watch(self, request: Request) -> Outcome:
        """Start a stream."""
        request.identity = self.kit.jane
        return StreamingResponse(self.streams.append)

    def test_chunks(self) -> None:
        """Each write is a chunk, sent at once; the connection is kept after the end."""
        self.user.deliver(get())
        self.assertIn(b"\r\nTransfer-Encoding: chunked\r\n", self.user.taken())
        stream = self.streams[0]
        self.assertTrue(stream.write(b"hello world"))
        self.assertEqual(self.user.taken(), b"b\r\nhello world\r\n")
        stream.write(b"")
        self.assertEqual(self.user.taken(), b"")
        stream.finish()
        self.assertEqual(self.user.taken(), b"0\r\n\r\n")
        self.assertFalse(stream.write(b"late"))
        stream.finish()
        self.assertEqual(self.user.taken(), b"")
        self.user.deliver(get())
        self.assertEqual(len(self.streams), 2)

    def test_http10(self) -> None:
        """HTTP/1.0 gets the bytes without chunks, and the connection closes."""
        self.user.deliver(b"GET / HTTP/1.0\r\n\r\n")
        self.user.taken()
        self.streams[0].write(b"abc")
        self.assertEqual(self.user.taken(), b"abc")
        self.streams[0].finish()
        self.assertTrue(self.user.closing)

    def test_head(self) -> None:
        """A HEAD does not start the producer."""
        self.user.deliver(get(method=b"HEAD"))
        self.assertEqual(self.streams, [])
        self.assertTrue(self.user.taken().endswith(b"\r\n\r\n"))

    def test_back_pressure(self) -> None:
        """The producer is notified when a user stops reading and when it continues."""
        self.user.deliver(get())
        events: list[str] = []
        self.streams[0].on_drained = lambda: events.append("drained")
        self.user.full = True
        self.assertFalse(self.streams[0].write(b"x"))
        self.user.drain()
        self.assertEqual(events, ["drained"])

    def test_gone(self) -> None:
        """The producer is notified once that the client disconnected."""
        self.user.deliver(get())
        events: list[str] = []
        self.streams[0].on_closed = lambda: events.append("closed")
        self.user.lose()
        self.streams[0].finish()
        self.assertEqual(events, ["closed"])

    def test_revoked(self) -> None:
        """A watch of Tower's own API ends with the credential."""
        self.user.deliver(get())
        identity, cluster, abort = self.kit.sessions.inside[0]
        self.assertEqual((identity, cluster), (self.kit.jane, ""))
        abort("revoked")
        self.assertTrue(self.user.aborted)

    def test_silent_for_hours(self) -> None:
        """A watch has no deadline."""
        self.user.deliver(get())
        self.kit.sweep(10_000)
        self.assertFalse(self.user.aborted)
