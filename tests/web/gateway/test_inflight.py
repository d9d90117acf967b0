"""Tests of `tower.web.gateway.inflight`, and upstream's cases of authentication and limits."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import Issues, authenticated, issue
from tests.fakes.gateway import Jane, Kit, as_sessions, get, ok
from tower.errors import Unauthorized
from tower.web.access.authentication.anonymous import AnonymousAuthenticator
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.inflight import take_own_place
from tower.web.gateway.request import Request
from tower.web.limits.caps import Cap, ClusterCap
from tower.web.limits.door_limits import DoorLimits
from tower.web.limits.seat_pool import PATIENCE, SeatPool
from tower.web.outcome import BodyStream, Outcome, RawStream, StreamingResponse

LIMIT = 400
PODS = b"/clusters/alpha/api/v1/pods"
LOG = b"/clusters/alpha/api/v1/namespaces/a/pods/b/log"
EXEC = b"/clusters/alpha/api/v1/namespaces/a/pods/b/exec"
UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

#: The head and the first bytes of an answer.
BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"


class LimitedTests(SynchronousTestCase):
    """A gateway with a limit."""

    def setUp(self) -> None:
        """Replace the kit's gateway."""
        self.kit = kit = Kit()
        self.users = 0
        self.limits = DoorLimits(by_cluster=ClusterCap(LIMIT))
        kit.gateway = Gateway(Clock(), kit.route, kit.pool, as_sessions(kit.sessions), inflight=self.limits)

    @property
    def counts(self) -> dict[str, int]:
        """Requests in flight by cluster."""
        assert self.limits.by_cluster is not None
        return self.limits.by_cluster.total.counts

    def ask(self, target: bytes = PODS, *fields: bytes) -> Any:
        """Return another user with a request."""
        self.users += 1
        self.kit.jane = Jane(f"user-{self.users}")
        user = self.kit.connect()
        user.deliver(get(target, *fields))
        return user

    def test_7_3_14_one_too_many(self) -> None:
        """The 401st request is answered 429 with Retry-After; after an answer the next one is accepted."""
        users = [self.ask() for _ in range(LIMIT)]
        pipes = self.kit.tunnel.pipes[:]
        late = self.ask()
        taken = late.taken()
        self.assertTrue(taken.startswith(b"HTTP/1.1 429 "), taken)
        self.assertIn(b"\r\nRetry-After: 1\r\n", taken)
        self.assertIn(b"Too many requests, please try again later.", taken)
        pipes[0].deliver(ok())
        self.assertTrue(users[0].taken().startswith(b"HTTP/1.1 200 "))
        late.deliver(get(PODS))
        self.assertEqual(late.taken(), b"")

    def test_7_3_14_watches_never_count(self) -> None:
        """The limit of a cluster counts no long-running requests, and upgrades of others until their 101."""
        for _ in range(LIMIT):
            self.ask()
        for target, fields in (
            (PODS + b"?watch=true", ()),
            (LOG + b"?follow=true", ()),
            (EXEC, UPGRADE),
        ):
            self.assertEqual(self.ask(target, *fields).taken(), b"")
        self.assertEqual(self.counts, {"alpha": LIMIT})
        self.assertTrue(self.ask(PODS, *UPGRADE).taken().startswith(b"HTTP/1.1 429 "))
        self.kit.tunnel.pipes[0].deliver(ok())
        self.ask(PODS, *UPGRADE)
        self.assertEqual(self.counts, {"alpha": LIMIT})
        self.kit.pipe.deliver(SWITCHED)
        self.assertEqual(self.counts, {"alpha": LIMIT - 1})

    def test_one_user_leaves_room(self) -> None:
        """Uploads of one user to a cluster, however many, do not keep another user out."""
        self.limits.by_cluster = ClusterCap(5)
        upload = get(PODS, b"Content-Length: 9").replace(b"GET", b"POST")
        jane = [self.kit.connect() for _ in range(9)]
        for user in jane:
            user.deliver(upload + b"{")
        answers = [user.taken() for user in jane]
        self.assertEqual([answer[9:12] for answer in answers], [b""] * 3 + [b"429"] * 6)
        self.assertIn(b"user jane has 3 requests in progress to cluster alpha", answers[-1])
        joe = self.ask()
        self.kit.pipe.deliver(ok())
        self.assertTrue(joe.taken().startswith(b"HTTP/1.1 200 "))

    def test_every_end_frees_a_place(self) -> None:
        """A request is not counted after its answer, a disconnect, or the loss of its cluster."""
        answered, gone, broken = self.ask(), self.ask(), self.ask()
        pipes = self.kit.tunnel.pipes
        pipes[0].deliver(ok())
        gone.lose()
        pipes[2].deliver(b"nonsense\r\n\r\n")
        self.assertTrue(answered.taken().startswith(b"HTTP/1.1 200 "))
        self.assertTrue(broken.taken().startswith(b"HTTP/1.1 502 "))
        self.assertEqual(self.counts, {})


class SharedTests(SynchronousTestCase):
    """A gateway whose requests share eight seats, so that one user has four at most."""

    def setUp(self) -> None:
        """Replace the kit's gateway."""
        self.kit = kit = Kit()
        self.clock = Clock()
        self.limits = DoorLimits(SeatPool(8), SeatPool(1), streams=Cap(1, "user", "max-streams-per-user"))
        kit.gateway = Gateway(
            self.clock, kit.route, kit.pool, as_sessions(kit.sessions), inflight=self.limits
        )

    def ask(self, target: bytes = PODS, *fields: bytes) -> Any:
        """Return a user with a request."""
        user = self.kit.connect()
        user.deliver(get(target, *fields))
        return user

    @property
    def used(self) -> int:
        """Number of seats that are taken by requests that only read."""
        assert self.limits.reading is not None
        return self.limits.reading.used

    @property
    def waiting(self) -> int:
        """Number of such requests that wait."""
        assert self.limits.reading is not None
        return self.limits.reading.waiting

    def test_wait(self) -> None:
        """A request waits for its seat, and is sent with its body when another one ends, in order."""
        users = [self.ask() for _ in range(6)]
        pipes = self.kit.tunnel.pipes
        self.assertEqual((len(pipes), self.waiting), (4, 2))
        pipes[0].deliver(ok())
        self.assertTrue(users[0].taken().startswith(b"HTTP/1.1 200 "))
        self.assertEqual(self.waiting, 1)
        pipes[1].deliver(ok())
        self.assertEqual(self.waiting, 0)
        self.assertEqual(users[5].taken(), b"")

    def test_full_cluster(self) -> None:
        """A request that has waited for its seat is counted by its cluster, and gets 429 if that is full."""
        self.limits.by_cluster = ClusterCap(9)
        users = [self.ask() for _ in range(6)]
        total = self.limits.by_cluster.total
        self.assertEqual((total.counts, self.waiting), ({"alpha": 4}, 2))
        total.limit = 3
        self.kit.tunnel.pipes[0].deliver(ok())
        self.assertEqual([user.taken()[9:12] for user in users], [b"200"] + [b""] * 3 + [b"429"] * 2)
        self.assertEqual((total.counts, self.waiting, self.used), ({"alpha": 3}, 0, 3))
        total.limit = 9
        users[0].deliver(get(PODS))
        users[4].deliver(get(PODS))
        self.assertEqual((total.counts, self.waiting), ({"alpha": 4}, 1))
        self.kit.tunnel.pipes[1].deliver(ok())
        self.assertEqual((total.counts, self.waiting), ({"alpha": 4}, 0))

    def test_disconnect(self) -> None:
        """A client that disconnects gives up its seat or its position."""
        users = [self.ask() for _ in range(6)]
        users[5].lose()
        self.assertEqual(self.waiting, 1)
        users[0].lose()
        self.assertEqual(self.waiting, 0)
        for user in users[1:5]:
            user.lose()
        self.assertEqual(self.used, 0)

    def test_too_long(self) -> None:
        """A request that waits for too long is answered 429 with the options that limit it."""
        users = [self.ask() for _ in range(5)]
        limit = round(self.kit.gateway.limits.answer * PATIENCE)
        for _ in range(limit - 1):
            self.clock.advance(1)
            self.kit.gateway.sweep()
        self.assertEqual(self.waiting, 1)
        for _ in range(3):
            self.clock.advance(1)
            self.kit.gateway.sweep()
        answer = users[4].taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 429 "))
        self.assertIn(b"\r\nRetry-After: 1\r\n", answer)
        self.assertIn(
            b"Too many requests, please try again later. (no seat of --max-requests-inflight", answer
        )
        self.assertEqual((self.waiting, self.limits.timed_out), (0, 1))

    def test_mutating(self) -> None:
        """Changes have their own seats, and a request with a body waits as well."""
        first, second = self.kit.connect(), self.kit.connect()
        post = get(PODS, b"Content-Length: 2").replace(b"GET", b"POST")
        first.deliver(post + b"{}")
        second.deliver(post)
        second.deliver(b"[]")
        self.assertEqual(len(self.kit.tunnel.pipes), 1)
        self.ask()
        self.assertEqual(len(self.kit.tunnel.pipes), 2)
        self.kit.tunnel.pipes[0].taken()
        self.kit.tunnel.pipes[0].deliver(ok())
        sent = b"".join(pipe.taken() for pipe in self.kit.tunnel.pipes)
        self.assertIn(b"POST", sent)
        self.assertTrue(sent.endswith(b"[]") or b"\r\n\r\n[]" in sent)

    def test_streams(self) -> None:
        """Watches and upgrades count toward the cap of streams until they end."""
        watch = self.ask(PODS + b"?watch=1")
        answer = self.ask(PODS + b"?watch=1").taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 429 "))
        self.assertIn(b"(--max-streams-per-user is 1, and user jane has as many in progress)", answer)
        watch.lose()
        command = self.ask(EXEC, *UPGRADE)
        self.kit.pipe.deliver(SWITCHED)
        self.assertIn(b"429", self.ask(PODS + b"?watch=1").taken())
        command.lose()
        self.assertEqual(self.ask(PODS + b"?watch=1").taken(), b"")

    def test_seats_of_streams(self) -> None:
        """A watch, a log or an upgrade takes a seat until its answer begins; further ones wait."""
        self.limits.streams = None
        for target, fields, answer in (
            (PODS + b"?watch=1", (), BEGUN),
            (LOG, (), BEGUN),
            (EXEC, UPGRADE, SWITCHED),
            (PODS, UPGRADE, SWITCHED),
            (b"/clusters/alpha/targets/web/", UPGRADE, SWITCHED),
        ):
            self.kit.tunnel.pipes.clear()
            users = [self.ask(target, *fields) for _ in range(6)]
            self.assertEqual((len(self.kit.tunnel.pipes), self.used, self.waiting), (4, 4, 2), target)
            self.kit.tunnel.pipes[0].deliver(answer)
            self.assertTrue(users[0].taken().startswith(b"HTTP/1.1 "))
            self.assertEqual((len(self.kit.tunnel.pipes), self.used, self.waiting), (5, 4, 1), target)
            for user in users:
                user.lose()
            self.assertEqual((self.used, self.waiting), (0, 0))

    def test_ignored_upgrade(self) -> None:
        """An upgrade that gets an ordinary answer keeps its seat until the end of the answer."""
        self.ask(PODS, *UPGRADE)
        self.kit.pipe.deliver(BEGUN)
        self.assertEqual(self.used, 1)
        self.kit.pipe.deliver(b"}" * 99)
        self.assertEqual(self.used, 0)

    def test_anonymous(self) -> None:
        """Anonymous users have the fair share of their address: a busy one leaves seats for another one."""
        self.kit.jane = AnonymousAuthenticator().authenticate(Presented(None, None))
        for host, used in (("192.0.2.1", 4), ("192.0.2.2", 6)):
            for _ in range(5):
                user: Any = self.kit.connect()
                user.getPeer = partial(IPv4Address, "TCP", host, 4711)
                user.deliver(get(PODS))
            self.assertEqual(self.used, used, host)

    def test_stalled(self) -> None:
        """A client that hardly reads gives its seat back after the timeout, and still gets its answer."""
        user = self.ask()
        self.kit.pipe.deliver(BEGUN)
        user.full = True
        for second in range(61):
            self.assertEqual(self.used, 1)
            if second % 10 == 0:
                user.drain()
                user.full = True
                self.kit.pipe.deliver(b"}")
            self.kit.sweep(1)
        self.assertEqual(self.used, 0)
        user.drain()
        self.kit.pipe.deliver(b"}" * 92)
        self.assertTrue(user.taken().startswith(b"HTTP/1.1 200 "))
        self.assertFalse(user.aborted)

    def test_silent_log(self) -> None:
        """A log without a line gives its seat back soon, a watch without an answer after the timeout."""
        self.limits.streams = None
        for target, seconds in ((LOG, 4), (PODS + b"?watch=1", 61)):
            user = self.ask(target)
            self.kit.sweep(seconds - 1)
            self.assertEqual(self.used, 1, target)
            self.kit.sweep(1)
            self.assertEqual((self.used, user.taken()), (0, b""), target)

    def test_raw_streams(self) -> None:
        """A raw stream takes a seat until it is open; until then, the next ones wait."""

        def answer(request: Request) -> Outcome:
            request.identity = self.kit.jane
            return RawStream("alpha", "database")

        self.limits.streams = None
        self.kit.gateway = Gateway(
            self.clock, answer, self.kit.pool, as_sessions(self.kit.sessions), inflight=self.limits
        )
        self.kit.tunnel.at_once = False
        fields = b"Connection: Upgrade", b"Upgrade: tower-stream"
        users = [self.ask(b"/clusters/alpha/targets/database", *fields) for _ in range(5)]
        self.assertEqual((len(self.kit.tunnel.targets), self.used, self.waiting), (4, 4, 1))
        self.kit.tunnel.confirm()
        self.assertEqual([user.taken()[:13] for user in users].count(b"HTTP/1.1 101 "), 1)
        self.assertEqual((len(self.kit.tunnel.targets), self.used, self.waiting), (5, 4, 0))

    def test_own_watches(self) -> None:
        """Watches of Tower's own API have that cap, too, except those of administrators; lists have none."""
        streams: list[BodyStream] = []
        groups: list[str] = []

        def answer(request: Request) -> Outcome:
            request.identity = Identity("jane", tuple(groups), method="test", key="jane")
            self.assertIsNone(take_own_place(request, self.limits))
            return StreamingResponse(streams.append)

        self.kit.gateway = Gateway(
            self.clock, answer, self.kit.pool, as_sessions(self.kit.sessions), inflight=self.limits
        )
        path = b"/apis/cluster.kubesphere.io/v1alpha1/clusters"
        watch = self.ask(path + b"?watch=1")
        self.assertTrue(watch.taken().startswith(b"HTTP/1.1 200 "))
        self.assertEqual(self.used, 0)
        self.assertTrue(self.ask(path + b"?watch=1").taken().startswith(b"HTTP/1.1 429 "))
        self.assertTrue(self.ask(path).taken().startswith(b"HTTP/1.1 200 "))
        groups.append("tower:admins")
        self.assertTrue(self.ask(path + b"?watch=1").taken().startswith(b"HTTP/1.1 200 "))
        groups.clear()
        streams[0].finish()
        self.assertTrue(self.ask(path + b"?watch=1").taken().startswith(b"HTTP/1.1 200 "))


class AuthenticationTests(SynchronousTestCase):
    """Authentication."""

    def test_7_3_13_who_shows_what(self) -> None:
        """A bad token is 401, even if upstream allows anonymous users; a valid certificate comes first."""
        issues = Issues()
        issues.put(b"certificate", issue("jane"))
        authenticator = issues.authenticator(Clock())
        for certificate, token in ((None, b"bad"), (None, None), (b"other", b"bad")):
            self.assertRaises(Unauthorized, authenticated, authenticator, certificate, token)
        self.assertEqual(authenticated(authenticator, b"certificate", b"bad").user, "jane")
