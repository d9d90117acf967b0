"""Holes 9, 21 and 32: failures of a user's request."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred

from tests.fakes.gateway import get, ok
from tests.holes.case import HoleTestCase
from tests.holes.towerkit import status_of
from tower.member.outgoing import DIAL_TIMEOUT
from tower.net.connecting import ConnectFailed

API = b"/clusters/alpha/api"


class FailureTests(HoleTestCase):
    """Hole 9: for any failure behind the proxy, the user reads the reason."""

    def setUp(self) -> None:
        """Connect an agent, and jane."""
        super().setUp()
        self.connected = self.agent()
        self.jane = self.tower.credential("alpha")

    def assert_status(self, answer: bytes, code: int, text: str = "") -> None:
        """Assert that *answer* is a Kubernetes Status with that code and text."""
        self.assertEqual(status_of(answer), code, answer)
        status = json.loads(answer.partition(b"\r\n\r\n")[2])
        self.assertEqual((status["kind"], status["code"], status["status"]), ("Status", code, "Failure"))
        self.assertIn(text, status["message"])

    def test_hole_09_an_api_server_that_is_not_reached(self) -> None:
        """Hole 9: refused, silent, untrusted, unknown: each is a Status with the reason, no empty 200."""
        for kind, code in (
            ("refused", 503),
            ("unreachable", 503),
            ("tls", 503),
            ("name", 503),
            ("busy", 503),
            ("timeout", 504),  # the error of the next requests, too
        ):

            def reach(kind: str = kind) -> Any:
                raise ConnectFailed(kind, f"10.0.0.1:6443: {kind} it is")

            self.connected.reach = reach
            answer = self.tower.ask(self.tower.user(), get(API, self.jane))
            self.assert_status(answer, code, f"{kind} it is")

    def test_hole_09_an_answer_that_breaks(self) -> None:
        """Hole 9: a connection that is lost before its answer, and an invalid answer, are a 502."""
        for play in (
            lambda server: server.lose(),
            lambda server: server.end(),
            lambda server: server.deliver(b"SSH-2.0-what\r\n\r\n"),
        ):
            user = self.tower.user()
            self.tower.ask(user, get(API, self.jane))
            play(self.server(self.connected))
            self.tower.pump()
            self.assert_status(user.taken(), 502, "alpha")

    def test_hole_09_a_cut_answer_is_cut(self) -> None:
        """Hole 9: an answer that ends too early ends the user's connection; it does not look whole."""
        user = self.tower.user()
        self.tower.ask(user, get(API, self.jane))
        server = self.server(self.connected)
        server.deliver(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        server.lose()
        self.tower.pump()
        self.assertTrue(user.taken().endswith(b"half"))
        self.assertTrue(user.lost)

    def test_hole_09_no_agent(self) -> None:
        """Hole 9: without an agent the Status has the time of the disconnection."""
        self.connected.service.stopService()
        self.tower.pump()
        user = self.tower.user()
        self.assertEqual(self.tower.ask(user, get(API, self.jane)), b"")
        self.tower.sweep(6)
        self.assert_status(user.taken(), 503, "was last seen at 2027-01-15T08:00:00Z")

    def test_hole_09_an_early_answer_to_an_upload(self) -> None:
        """Hole 9: an error that comes while a body is still being sent reaches the user whole."""
        user = self.tower.user()
        upload = get(API, self.jane, b"Content-Length: 1000000", method=b"PUT", body=b"a" * 50_000)
        self.tower.ask(user, upload)
        server = self.server(self.connected)
        server.deliver(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
        server.end()
        self.tower.pump()
        answer = user.taken()
        self.assertEqual((status_of(answer), answer[-5:]), (413, b"large"))


class PoolTests(HoleTestCase):
    """Hole 21: connections to the API server are kept."""

    def test_hole_21_parallel_requests_find_a_connection(self) -> None:
        """Hole 21: of 32 requests at once each keeps its connection for the next: 96 requests, 32 dials."""
        agent = self.agent()
        jane = self.tower.credential("alpha")
        users = [self.tower.user() for _ in range(32)]
        for _ in range(3):
            for user in users:
                user.deliver(get(API, jane))
            self.tower.pump()
            for server in agent.servers:
                server.deliver(ok())
            self.tower.pump()
            self.assertEqual([status_of(user.taken()) for user in users], [200] * 32)
        self.assertEqual((len(agent.dialed), self.tower.pool.opened, self.tower.pool.taken), (32, 32, 64))


class WaitTests(HoleTestCase):
    """Hole 32: how long anything may take."""

    def setUp(self) -> None:
        """Connect an agent, and jane."""
        super().setUp()
        self.connected = self.agent()
        self.jane = self.tower.credential("alpha")

    def test_hole_32_no_answer(self) -> None:
        """Hole 32: an API server that takes a request and stays silent is a 504 after a minute."""
        user = self.tower.user()
        self.tower.ask(user, get(API, self.jane))
        self.tower.sweep(59)
        self.assertEqual(user.taken(), b"")
        self.tower.sweep(3)
        self.assertEqual(status_of(user.taken()), 504)
        self.assertTrue(self.server(self.connected).lost)

    def test_hole_32_no_connection(self) -> None:
        """Hole 32: so is one that is never reached; the agent itself gives up after 10 s."""
        dialing: list[Deferred[Any]] = []
        limits: list[float] = []

        def connect(reactor: Any, host: str, port: int, *, timeout: float, **_: Any) -> Deferred[Any]:
            limits.append(timeout)
            dialing.append(Deferred())
            return dialing[-1]

        self.connected.outgoing._connect = connect
        user = self.tower.user()
        self.tower.ask(user, get(API, self.jane))
        self.assertEqual(limits, [DIAL_TIMEOUT])
        self.tower.sweep(122)
        self.assertEqual(status_of(user.taken()), 504)

    def test_hole_32_long_requests_may_be_long(self) -> None:
        """Hole 32: a silent watch is not affected; it ends with its user."""
        user = self.tower.user()
        self.tower.ask(user, get(b"/clusters/alpha/api/v1/pods?watch=1", self.jane))
        self.server(self.connected).deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.tower.sweep(600)
        self.assertEqual(status_of(user.taken()), 200)
        self.assertFalse(user.lost)
        user.lose()
        self.tower.pump()
        self.assertTrue(self.server(self.connected).lost)

    def test_hole_32_silent_users(self) -> None:
        """Hole 32: a user cannot keep a connection by silence, or by half a request."""
        silent, slow = self.tower.user(), self.tower.user(6000)
        slow.deliver(b"GET /api HTTP/1.1\r\n")
        self.tower.sweep(12)
        self.assertEqual(status_of(slow.taken()), 408)
        self.tower.sweep(20)
        self.assertTrue(silent.closing)
