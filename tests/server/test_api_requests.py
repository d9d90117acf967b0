"""Tests for `tower.server.api_requests`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, as_sessions, get
from tower.server.api_requests import ApiRequests
from tower.web.access.authentication.identity import Identity
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.request import Request
from tower.web.limits.caps import ClusterCap
from tower.web.limits.door_limits import DoorLimits
from tower.web.limits.seat_pool import PATIENCE, SeatPool
from tower.web.outcome import Outcome, Response, StreamingResponse

PATH = b"/apis/cluster.kubesphere.io/v1alpha1/clusters"
ANSWER = Response(200, b"{}")


class ApiRequestsTests(SynchronousTestCase):
    """Users of Tower's own API, whose answers the tests give."""

    def setUp(self) -> None:
        """Serve the API, with two seats."""
        self.kit = Kit()
        self.clock: Any = self.kit.clock
        self.user, self.groups = "jane", list[str]()
        self.waiting: list[Deferred[Outcome]] = []
        self.cancelled = 0
        self.pool = SeatPool(2)
        self.limits = DoorLimits(self.pool, by_cluster=ClusterCap(1))
        chain: Any = self.filter
        self.kit.gateway = Gateway(
            self.clock,
            ApiRequests(chain, self.answer),
            self.kit.pool,
            as_sessions(self.kit.sessions),
            inflight=self.limits,
        )

    def filter(self, request: Any, cluster: str, end: Any) -> Any:
        """Accept a request as the user."""
        self.assertEqual(cluster, "")
        request.identity = Identity(self.user, tuple(self.groups), method="test", key="k")
        return end()

    def answer(self, _request: Request) -> Deferred[Outcome]:
        """Answer later."""

        def cancel(_: object) -> None:
            self.cancelled += 1

        self.waiting.append(Deferred(cancel))
        return self.waiting[-1]

    def ask(self, query: bytes = b"", user: str = "jane", *fields: bytes) -> Any:
        """Return a client with a request."""
        self.user = user
        client = self.kit.connect()
        client.deliver(get(PATH + query, *fields))
        return client

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)
        self.kit.gateway.sweep()

    def test_timeout(self) -> None:
        """A request that takes longer than its own timeout is cancelled, and answered 504."""
        client = self.ask(b"?limit=1&timeout=1500ms")
        self.clock.advance(1.4)
        self.assertEqual(client.taken(), b"")
        self.clock.advance(0.1)
        answer = client.taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 504 "), answer)
        self.assertIn(
            b'"Timeout: request did not complete within the allotted timeout: Tower did not', answer
        )
        self.assertIn(b'"reason": "Timeout"', answer)
        self.assertEqual((self.cancelled, self.pool.used), (1, 0))

    def test_in_time(self) -> None:
        """An answer in time is not changed, and its timer ends."""
        client = self.ask(b"?timeout=2s")
        self.waiting[0].callback(ANSWER)
        self.assertTrue(client.taken().startswith(b"HTTP/1.1 200 "))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_shorter(self) -> None:
        """Without a timeout, with 0, a negative one, or more than --request-timeout, that option counts."""
        for query in (b"", b"?timeout=", b"?timeout=0s", b"?timeout=-1s", b"?timeout=61s", b"?timeout=60s"):
            self.ask(query)
            self.assertEqual(self.clock.getDelayedCalls(), [], query)
            self.waiting.pop().callback(ANSWER)

    def test_invalid(self) -> None:
        """A timeout that is not Go's notation is answered 400 with kube-apiserver's text."""
        for text, cause in (
            (b"x", 'time: invalid duration \\"x\\"'),
            (b"10", 'time: missing unit in duration \\"10\\"'),
            (b"1d", 'time: unknown unit \\"d\\" in duration \\"1d\\"'),
            (b"%31x", 'time: unknown unit \\"x\\" in duration \\"1x\\"'),
        ):
            answer = self.ask(b"?timeout=" + text).taken()
            self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
            self.assertIn(f"invalid timeout specified in the request URL - {cause}".encode(), answer)
        self.assertEqual(self.waiting, [])

    def test_watch(self) -> None:
        """Watches have no such timeout, and take a seat until their answer begins."""
        self.ask(b"?watch=1&timeout=x")
        self.assertEqual((len(self.waiting), self.pool.used), (1, 1))
        self.waiting[0].callback(StreamingResponse(lambda _: None))
        self.assertEqual(self.pool.used, 0)

    def test_upgrade(self) -> None:
        """An upgrade, or the name of a stream in the path, takes a seat and has a timeout as well."""
        for path, fields in ((b"?timeout=1s", (b"Connection: Upgrade", b"Upgrade: x")), (b"/a/log", ())):
            client = self.ask(path, "jane", *fields)
            self.assertEqual(self.pool.used, 1, path)
            self.waiting.pop().callback(ANSWER)
            self.assertTrue(client.taken().startswith(b"HTTP/1.1 200 "))
        self.ask(b"?timeout=1s", "jane", b"Connection: Upgrade", b"Upgrade: x")
        self.later(1)
        self.assertEqual(self.cancelled, 1)

    def test_fair(self) -> None:
        """A request of a user with many waits until one of them ends; others' do not wait."""
        first, second = self.ask(), self.ask()
        self.assertEqual((len(self.waiting), self.pool.used, self.pool.waiting), (1, 1, 1))
        self.ask(user="joe")
        self.assertEqual(len(self.waiting), 2)
        self.user = "jane"
        self.waiting[0].callback(ANSWER)
        self.assertTrue(first.taken().startswith(b"HTTP/1.1 200 "))
        self.waiting[1].callback(ANSWER)
        self.waiting[2].callback(ANSWER)
        self.assertTrue(second.taken().startswith(b"HTTP/1.1 200 "))
        self.assertEqual((self.pool.used, self.pool.waiting), (0, 0))

    def test_waits_too_long(self) -> None:
        """A request that waits for too long is answered 429; one whose client disconnects gives up."""
        self.ask()
        late, lost = self.ask(), self.ask(b"?timeout=50s")
        lost.lose()
        self.assertEqual(self.pool.waiting, 1)
        for _ in range(round(self.kit.gateway.limits.answer * PATIENCE) + 2):
            self.later(1)
        self.assertTrue(late.taken().startswith(b"HTTP/1.1 429 "))
        self.assertEqual((len(self.waiting), self.pool.waiting), (1, 0))

    def test_administrators(self) -> None:
        """Administrators take no seats, as upstream's system:masters."""
        self.groups.append("tower:admins")
        for _ in range(5):
            self.ask()
        self.assertEqual((len(self.waiting), self.pool.used), (5, 0))
