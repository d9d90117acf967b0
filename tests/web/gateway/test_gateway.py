"""Tests of `tower.web.gateway.gateway` and `tower.web.gateway.http_channel`: connections and deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, Jane, Kit, connection, get, ok
from tests.fakes.observers import FakeObserver
from tests.fakes.pipes import FakePipe
from tower.net.budget import Budget
from tower.net.connection_slots import Slots
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Response


def hello(request: Request) -> Outcome:
    """Answer immediately."""
    return Response(200, b"hello", ((b"Content-Type", b"text/plain"),))


def known(router: Callable[[Request], Outcome]) -> Callable[[Request], Outcome]:
    """Return *router* for users with a valid credential."""

    def route(request: Request) -> Outcome:
        request.channel.prove()
        return router(request)

    return route


class HeadTests(SynchronousTestCase):
    """Heads that are fragmented, late, too long or invalid."""

    def answer(self, data: bytes) -> bytes:
        """Return the answer to *data*, after which the connection is closed."""
        kit = Kit()
        kit.user.deliver(data)
        self.assertTrue(kit.user.closing, data[:80])
        self.assertEqual(kit.tunnel.pipes, [])
        self.assertEqual(kit.requests, [])
        return kit.user.taken()

    def test_any_split(self) -> None:
        """Two requests are served whatever the fragmentation."""
        wire = get(b"/1") + get(b"/2", b"Content-Length: 3", method=b"POST", body=b"abc")
        for cut in range(len(wire)):
            kit = Kit(hello)
            kit.user.deliver(wire[:cut])
            kit.user.deliver(wire[cut:])
            kit.take_turns()
            self.assertEqual([request.target for request in kit.requests], [b"/1", b"/2"])

    def test_byte_by_byte(self) -> None:
        """The same in single bytes, with an empty line before each request, which is ignored."""
        kit = Kit(hello)
        for value in (b"\r\n" + get(b"/1")) * 2:
            kit.user.deliver(bytes((value,)))
        self.assertEqual([request.target for request in kit.requests], [b"/1", b"/1"])

    def test_shapes(self) -> None:
        """A request that is not plain HTTP/1.1 is answered with its status, and the connection closes."""
        for wire, status in (
            (b"GET / HTTP/1.1\r\n\r\n", b"400"),
            (b"GET / HTTP/1.1\nHost: a\n\n", b"400"),
            (b"\x16\x03\x01\x02\0\r\n\r\n", b"400"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
            (get(b"/", b"Content-Length: 1", b"Transfer-Encoding: chunked"), b"400"),
            (get(b"/clusters/alpha/../beta"), b"400"),
            (get(b"/", b"Transfer-Encoding: gzip"), b"501"),
            (get(b"/", b"Expect: much"), b"417"),
            (get(b"/", b"Transfer-Encoding: chunked", body=b"zz\r\n"), b"400"),
            (b"GET /" + b"a" * 65_536, b"431"),
            (get(b"/", b"A: " + b"a" * 65_536), b"431"),
        ):
            answer = self.answer(wire)
            self.assertTrue(answer.startswith(b"HTTP/1.1 " + status), (wire[:60], answer))
            self.assertIn(b"\r\nConnection: close\r\n", answer)
            self.assertIn(b'"kind": "Status"', answer)

    def test_nothing_behind_a_bad_head(self) -> None:
        """Bytes after a rejected head are ignored."""
        kit = Kit(hello)
        kit.user.deliver(get(b"/..") + get())
        kit.user.deliver(get())
        self.assertEqual(kit.requests, [])

    def test_shapes_in_pieces(self) -> None:
        """A fragmented head is rejected as soon as it cannot become valid."""
        for first, second, status in (
            (b"GET / HTTP/1.1\r\nA: ", b"a" * 65_536, b"431"),
            (b"GET / HTTP/1.1\r", b"\nHost: a\n", b"400"),
            (b"GET / HTTP/1.1", b"\nHost: a", b"400"),
        ):
            kit = Kit()
            kit.user.deliver(first)
            self.assertFalse(kit.user.closing)
            kit.user.deliver(second)
            self.assertTrue(kit.user.taken().startswith(b"HTTP/1.1 " + status))
            self.assertTrue(kit.user.closing)

    def test_slow_head(self) -> None:
        """A head must be complete within 10 s, even if bytes keep arriving."""
        kit = Kit(hello)
        kit.user.deliver(get())
        kit.user.taken()
        kit.sweep(60)
        for value in get()[:10]:
            kit.user.deliver(bytes((value,)))
            kit.sweep(1)
        self.assertEqual(kit.user.taken(), b"")
        kit.sweep(1)
        self.assertTrue(kit.user.taken().startswith(b"HTTP/1.1 408 "))
        self.assertTrue(kit.user.closing)

    def test_silence(self) -> None:
        """A connection may be idle for two minutes between requests, and 30 s before the first."""
        kit = Kit(hello)
        kit.sweep(30)
        self.assertFalse(kit.user.closing)
        kit.sweep(1)
        self.assertTrue(kit.user.closing)
        kit = Kit(hello)
        kit.user.deliver(get())
        kit.sweep(120)
        self.assertFalse(kit.user.closing)
        kit.sweep(1)
        self.assertTrue(kit.user.closing)

    def test_user_who_takes_nothing(self) -> None:
        """A user who does not read has more time, without a 408 for pipelined requests."""
        kit = Kit(known(hello))
        kit.user.full = True
        kit.user.deliver(get() + get())
        kit.sweep(3600)
        self.assertEqual(len(kit.requests), 1)
        self.assertFalse(kit.user.aborted)
        kit.sweep(1)
        self.assertTrue(kit.user.aborted)


class ConnectionTests(SynchronousTestCase):
    """Connections as a whole."""

    def test_slot(self) -> None:
        """Authentication keeps a connection's slot; a request that requires none does not."""
        jane: Any = Jane()
        for authenticated, proven in ((None, False), ((b"token", jane), True)):
            kit = Kit()
            kit.user.slot = slot = Slots(kit.clock).take(None)  # type: ignore[attr-defined]
            assert slot is not None
            channel = cast(HTTPChannel, kit.user.receiver)
            channel.authenticated = authenticated
            kit.user.deliver(get())
            self.assertEqual((len(kit.sessions.inside), slot.proven), (1, proven))

    def test_stopping(self) -> None:
        """A gateway that is stopping rejects new connections."""
        kit = Kit(hello)
        kit.gateway.stop(1)
        self.assertIsNone(kit.gateway.accept(connection(FakeUser())))

    def test_cut(self) -> None:
        """A request that a stop cuts gets the reason."""
        kit = Kit(lambda _: Deferred())
        kit.user.deliver(get())
        kit.gateway.farewell = "this proxy is stopping: it lost its Lease"
        kit.gateway.stop(1.0)
        kit.clock.advance(1.0)
        self.assertIn(b"this proxy is stopping: it lost its Lease", kit.user.taken())

    def test_half_close(self) -> None:
        """A user who half-closes gets the answers that are complete."""
        kit = Kit(hello)
        kit.user.deliver(get())
        kit.user.end()
        self.assertTrue(kit.user.closing)
        self.assertIn(b"hello", kit.user.taken())

    def test_full_user_with_many_requests(self) -> None:
        """Answers of Tower wait, one at a time, for a user who does not read."""
        kit = Kit(hello)
        kit.user.full = True
        kit.user.deliver(get() * 3)
        self.assertEqual(len(kit.requests), 1)
        kit.user.deliver(get())
        kit.user.receiver.drained()
        self.assertEqual(len(kit.requests), 2)
        kit.user.drain()
        kit.take_turns()
        self.assertEqual(len(kit.requests), 4)

    def test_thousands_at_once(self) -> None:
        """Pipelined requests with immediate answers do not exhaust the stack."""
        for router in (hello, known(hello)):
            kit = Kit(router)
            kit.user.deliver(get() * 3000)
            kit.take_turns()
            self.assertEqual(len(kit.requests), 3000)

    def test_stop_idle(self) -> None:
        """Stopping closes idle connections at once and rejects new ones."""
        kit = Kit(hello)
        stopped = kit.gateway.stop(5.0)
        self.assertTrue(kit.user.closing)
        self.assertNoResult(stopped)
        kit.user.lose()
        self.successResultOf(stopped)
        self.assertIsNone(kit.gateway.accept(connection(FakeUser())))
        self.assertEqual(kit.clock.getDelayedCalls(), [])

    def test_stop_busy(self) -> None:
        """An answer in progress is finished, with `Connection: close`."""
        kit = Kit()
        kit.user.deliver(get())
        stopped = kit.gateway.stop(5.0)
        self.assertFalse(kit.user.closing)
        kit.pipe.deliver(ok())
        self.assertTrue(kit.user.closing)
        kit.user.lose()
        self.successResultOf(stopped)
        self.assertEqual(kit.gateway.cut, 0)

    def test_stop_cuts(self) -> None:
        """After the grace, all requests are cut and counted, and the log gets the cause."""
        kit = Kit()
        kit.gateway.observer = observer = FakeObserver()
        kit.user.deliver(get())
        kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        stopped = kit.gateway.stop(5.0)
        kit.clock.advance(5.0)
        self.assertTrue(kit.user.aborted)
        self.successResultOf(stopped)
        self.assertEqual(kit.gateway.cut, 1)
        self.assertEqual([each["aborted"] for each in observer.over], ["tower"])

    def test_stop_nobody(self) -> None:
        """Without connections, stopping ends at once."""
        kit = Kit()
        kit.user.lose()
        self.successResultOf(kit.gateway.stop(5.0))

    def test_certificate_once(self) -> None:
        """The certificate is read once for each connection."""
        kit = Kit(hello)
        kit.user.deliver(get())
        self.assertEqual(kit.requests[0].certificate, b"DER")
        kit.user.certificate = None
        kit.user.deliver(get())
        self.assertEqual(kit.requests[1].certificate, b"DER")


class BudgetTests(SynchronousTestCase):
    """Memory for bytes that arrive faster than they can be forwarded."""

    def test_partial_heads(self) -> None:
        """Incomplete heads borrow from the budget, and give back however they end."""
        budget = Budget(10_000)
        kit = Kit(known(hello), budget=budget)
        kit.user.deliver(get())
        kit.user.taken()
        kit.user.deliver(b"GET /" + b"a" * 5000)
        kit.user.deliver(b"a" * 5000)
        self.assertEqual(budget.lent, 10_005 - 4096)
        other = kit.connect()
        other.deliver(get())
        other.taken()
        other.deliver(b"GET /" + b"a" * 9000)
        self.assertTrue(other.taken().startswith(b"HTTP/1.1 503 "))
        self.assertTrue(other.closing)
        kit.user.deliver(b" HTTP/1.1\r\nHost: a\r\n\r\n")
        self.assertTrue(kit.user.taken().startswith(b"HTTP/1.1 200 "))
        self.assertEqual(budget.lent, 0)
        kit.user.deliver(b"GET /" + b"a" * 5000)
        kit.user.lose()
        self.assertEqual(budget.lent, 0)

    def test_early_bodies(self) -> None:
        """A body without a taker borrows until it has one."""
        budget = Budget(10_000)
        kit = Kit(budget=budget)
        kit.tunnel.at_once = False
        upload = get(b"/clusters/alpha/x", b"Content-Length: 100000", method=b"PUT", body=b"a" * 9000)
        kit.user.deliver(upload)
        self.assertEqual(budget.lent, 9000 - 4096)
        other = kit.connect()
        other.deliver(upload)
        self.assertEqual(budget.lent, 2 * (9000 - 4096))
        third = kit.connect()
        third.deliver(upload)
        self.assertTrue(third.taken().startswith(b"HTTP/1.1 503 "))
        other.lose()
        kit.tunnel.openings[0].callback(pipe := FakePipe())
        self.assertEqual(len(pipe.taken().partition(b"\r\n\r\n")[2]), 9000)
        self.assertEqual(budget.lent, 0)

    def test_pipelined(self) -> None:
        """Pipelined requests borrow too."""
        budget = Budget(10_000)
        kit = Kit(budget=budget)
        kit.user.deliver(get())
        kit.user.deliver(get() * 100)
        self.assertGreater(budget.lent, 0)
        for _ in range(101):
            kit.pipe.deliver(ok())
        self.assertEqual(budget.lent, 0)
        kit.user.deliver(get())
        kit.user.deliver(b"a" * 15_000)
        self.assertTrue(kit.user.taken().endswith(b"}\n"))
        self.assertTrue(kit.user.closing)
        self.assertEqual(budget.lent, 0)


class EndOfWatchesTests(SynchronousTestCase):
    """A stop while watches, a stream and a short request are in progress."""

    WATCH = b"/clusters/alpha/api/v1/pods?watch=1"

    def setUp(self) -> None:
        """Begin two watches; the second one is in the middle of a chunk."""
        self.kit = Kit()
        self.users = [self.kit.user, self.kit.connect()]
        self.pipes = []
        for user, chunk in zip(self.users, (b"2\r\n{}\r\n", b"9\r\n{"), strict=True):
            user.deliver(get(self.WATCH))
            self.pipes.append(self.kit.pipe)
            self.kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
            user.taken()

    def begin(self, target: bytes) -> FakeUser:
        """Begin another request."""
        user = self.kit.connect()
        user.deliver(get(target))
        return user

    def test_clean_end(self) -> None:
        """A watch ends after its last chunk; one in a chunk ends after that chunk."""
        stopped = self.kit.gateway.stop(10)
        self.assertEqual(self.users[0].taken(), b"0\r\n\r\n")
        self.assertTrue(self.users[0].closing)
        self.assertTrue(self.pipes[0].aborted)
        self.assertFalse(self.users[1].closing)
        self.pipes[1].deliver(b"12345678\r\n")
        self.kit.sweep(1)
        self.assertTrue(self.users[1].taken().endswith(b"12345678\r\n0\r\n\r\n"))
        for user in self.users:
            user.lose()
        self.successResultOf(stopped)
        self.assertEqual(self.kit.gateway.cut, 0)

    def test_short_requests_first(self) -> None:
        """Watches go on until the short requests are answered; a log goes on to the end."""
        short, log = self.begin(b"/clusters/alpha/api"), self.kit.pipe
        stream = self.begin(b"/clusters/alpha/api/v1/namespaces/a/pods/b/log?follow=1")
        self.kit.gateway.stop(10)
        self.kit.sweep(2)
        self.assertFalse(self.users[0].closing)
        log.deliver(ok())
        self.assertIn(b" 200 ", short.taken())
        self.kit.sweep(1)
        self.assertTrue(self.users[0].closing)
        self.assertFalse(stream.closing)

    def test_bound(self) -> None:
        """A short request without an answer delays them for half of the time."""
        self.begin(b"/clusters/alpha/api")
        self.kit.gateway.stop(10)
        self.kit.clock.advance(4.9)
        self.kit.sweep(1)
        self.assertFalse(self.users[0].closing)
        self.kit.clock.advance(0.2)
        self.kit.sweep(1)
        self.assertTrue(self.users[0].closing)
