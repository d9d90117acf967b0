"""Tests of `tower.web.gateway.inflight`, and upstream's cases of authentication and limits."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import Issues, authenticated, issue
from tests.fakes.gateway import Kit, as_sessions, get, ok
from tower.errors import Unauthorized
from tower.kube.status import StatusError
from tower.web.gateway.gateway import Gateway
from tower.web.gateway.inflight import InFlight

LIMIT = 400
PODS = b"/clusters/alpha/api/v1/pods"


class InFlightTests(SynchronousTestCase):
    """Counting."""

    def test_each_cluster_for_itself(self) -> None:
        """Each cluster has its own limit, and no counter is kept without requests."""
        inflight = InFlight(1)
        inflight.enter("alpha")
        inflight.enter("beta")
        error: StatusError = self.assertRaises(StatusError, inflight.enter, "alpha")
        self.assertEqual((error.code, error.details["retryAfterSeconds"]), (429, 1))
        inflight.leave("alpha")
        inflight.enter("alpha")
        for name in ("alpha", "beta"):
            inflight.leave(name)
        self.assertEqual(inflight.counts, {})


class LimitedTests(SynchronousTestCase):
    """A gateway with a limit."""

    def setUp(self) -> None:
        """Replace the kit's gateway."""
        self.kit = kit = Kit()
        self.inflight = InFlight(LIMIT)
        kit.gateway = Gateway(Clock(), kit.route, kit.pool, as_sessions(kit.sessions), inflight=self.inflight)

    def ask(self, target: bytes = PODS, *fields: bytes) -> Any:
        """Return a user with a request."""
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
        """Long-running requests are not counted, and always accepted."""
        for _ in range(LIMIT):
            self.ask()
        for target, fields in (
            (PODS + b"?watch=true", ()),
            (b"/clusters/alpha/api/v1/namespaces/a/pods/b/log?follow=true", ()),
            (
                b"/clusters/alpha/api/v1/namespaces/a/pods/b/exec",
                (b"Connection: Upgrade", b"Upgrade: websocket"),
            ),
        ):
            self.assertEqual(self.ask(target, *fields).taken(), b"")
        self.assertEqual(self.inflight.counts, {"alpha": LIMIT})

    def test_every_end_frees_a_place(self) -> None:
        """A request is not counted after its answer, a disconnect, or the loss of its cluster."""
        answered, gone, broken = self.ask(), self.ask(), self.ask()
        pipes = self.kit.tunnel.pipes
        pipes[0].deliver(ok())
        gone.lose()
        pipes[2].deliver(b"nonsense\r\n\r\n")
        self.assertTrue(answered.taken().startswith(b"HTTP/1.1 200 "))
        self.assertTrue(broken.taken().startswith(b"HTTP/1.1 502 "))
        self.assertEqual(self.inflight.counts, {})


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
