"""Tests of `tower.web.access.authentication.login.confirmer` with many sessions in use at a time."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import ISSUER, NOW
from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.store import MemoryStore
from tower.trust.vault import Vault
from tower.web.access.authentication.login.confirmation_queue import CONCURRENT
from tower.web.access.authentication.login.confirmer import AGE, JITTER, LIMIT, PERIOD, Confirmer
from tower.web.access.authentication.login.token_endpoint import (
    TIMEOUT,
    ProviderUnavailable,
    RefreshedTokens,
)
from tower.web.access.authentication.oidc.provider import OIDCProvider

HEALTHY, DOWN = "https://id.example", "https://down.example"

#: Time of an answer, s, and time after which `TokenEndpoint` gives up a provider that never answers, s.
DELAY, NEVER = 0.2, 2 * TIMEOUT


class SlowRequests:
    """Two providers; a refresh token is the name of its user.

    :ivar down: issuers that never answer.
    :ivar failing: users whose requests fail.
    :ivar asked: number of requests by issuer; *most*: highest number at a time.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.down = {DOWN}
        self.failing: set[str] = set()
        self.asked = Counter[str]()
        self.most = Counter[str]()
        self._now = Counter[str]()

    async def refresh(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> RefreshedTokens:
        """See `TokenRequests.refresh`."""
        url = provider.issuer.url
        is_down = url in self.down
        self.asked[url] += 1
        self._now[url] += 1
        self.most[url] = max(self.most[url], self._now[url])
        answering: Deferred[None] = Deferred(lambda _: timer.cancel())
        timer = self._clock.callLater(NEVER if is_down else DELAY, answering.callback, None)
        try:
            await answering
        finally:
            self._now[url] -= 1
        if is_down or refresh_token in self.failing:
            raise ProviderUnavailable("no answer")
        return RefreshedTokens("", "", refresh_token)

    async def userinfo(self, provider: OIDCProvider, access_token: str) -> Mapping[str, Any]:
        """See `TokenRequests.userinfo`."""
        return {"sub": access_token}

    async def revoke(self, provider: OIDCProvider, client_id: str, refresh_token: str) -> None:
        """See `TokenRequests.revoke`."""


class ManySessionsTests(SynchronousTestCase):
    """Sessions with live requests, which began together."""

    def setUp(self) -> None:
        """Make the confirmer."""
        self.clock: Any = Clock()
        self.clock.advance(NOW)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.records = LoginSessions(MemoryStore(), self.clock, Vault(Path(folder.name) / "secrets.key"))
        self.addCleanup(self.records.stop)
        self.requests = SlowRequests(self.clock)
        oidc: Any = SimpleNamespace(
            provider=lambda url: SimpleNamespace(fingerprint="f", issuer=evolve(ISSUER, url=url))
        )
        self.sessions: list[LoginSession] = []
        self.confirmer = Confirmer(
            self.records,
            oidc,
            lambda _: "client",
            self.requests,
            lambda *_: None,
            lambda: [each.id for each in self.sessions],
            self.clock.seconds,
            self.clock,
        )

    def begin(self, count: int, issuer: str = HEALTHY, user: str = "") -> None:
        """Begin sessions, each of another user unless one is given."""
        for i in range(count):
            name = user or f"u{i}"
            session = LoginSession(
                "", name, (), "", (), issuer, "f", name, "key", NOW, NOW + 86400, self.clock.seconds()
            )
            self.sessions.append(
                self.successResultOf(Deferred.fromCoroutine(self.records.add(session, name)))
            )

    def play(self, seconds: float) -> list[LoginSession]:
        """Let time pass; return the sessions whose requests were cut."""
        cut: dict[str, LoginSession] = {}
        end = self.clock.seconds() + seconds
        while self.clock.seconds() < end:
            self.confirmer.check()
            self.clock.pump([DELAY] * round(PERIOD / DELAY))
            cut.update((each.id, each) for each in self.sessions if self.confirmer.is_overdue(each))
        return list(cut.values())

    def waiting(self) -> int:
        """Return how many sessions wait."""
        return sum(map(len, self.confirmer._queues.values()))

    def test_another_provider_is_down(self) -> None:
        """No request of a healthy provider's 1,000 sessions is cut while another provider never answers."""
        self.begin(1000, DOWN)
        self.begin(1000)
        cut = self.play(2 * LIMIT)
        self.assertEqual({each.issuer for each in cut}, {DOWN})
        self.assertEqual(self.requests.most, {HEALTHY: CONCURRENT, DOWN: CONCURRENT})
        self.assertGreaterEqual(self.confirmer.results["confirmed"], 2 * 1000)
        self.assertLess(self.requests.asked[DOWN], 6 * CONCURRENT)
        self.assertLessEqual(self.waiting(), 2000)

    def test_healthy_provider(self) -> None:
        """While the provider answers, each of 2,000 sessions is confirmed in time, with a bounded load."""
        self.begin(2000)
        self.assertEqual(self.play(3 * LIMIT), [])
        self.assertLessEqual(self.requests.most[HEALTHY], CONCURRENT)
        self.assertLess(self.requests.asked[HEALTHY], 3 * LIMIT / 300 * 2000)

    def test_spread(self) -> None:
        """Sessions that began together are confirmed at different times."""
        self.begin(600)
        for share in (1 / 3, 2 / 3, 1.0):
            end = NOW + AGE - JITTER * (1 - share) + PERIOD
            self.play(end - self.clock.seconds())
            self.assertLess(abs(self.requests.asked[HEALTHY] - 600 * share), 100)

    def test_user_with_many_sessions(self) -> None:
        """1,000 sessions of a user do not delay the others', whether they are confirmed or not."""
        self.begin(1000, user="jane")
        self.begin(20)
        self.assertEqual(self.play(2 * LIMIT), [])
        self.requests.failing = {"jane"}
        self.assertEqual({each.user for each in self.play(2 * LIMIT)}, {"jane"})

    def test_request_of_another_user(self) -> None:
        """A user's request does not wait for the confirmations of another user's 1,000 sessions."""
        self.begin(1000, user="jane")
        self.begin(1)
        self.clock.advance(LIMIT + 1)
        self.confirmer.check()
        waiting = Deferred.fromCoroutine(self.confirmer.confirmed(self.sessions[-1]))
        self.clock.pump([DELAY] * 2)
        self.successResultOf(waiting)

    def test_after_an_outage(self) -> None:
        """A provider that is down gets few requests, and confirms all in a minute when it is back."""
        self.begin(500)
        self.requests.down.add(HEALTHY)
        self.play(500)
        self.assertLess(self.requests.asked[HEALTHY], 3 * CONCURRENT)
        self.requests.down.clear()
        self.assertEqual(self.play(60), [])
        self.assertEqual(self.play(2 * LIMIT), [])

    def test_sessions_that_cannot_be_confirmed(self) -> None:
        """Sessions that the provider cannot confirm do not delay those of other users."""
        self.begin(300)
        self.requests.failing = {f"u{i}" for i in range(100)}
        cut = self.play(2 * LIMIT)
        self.assertEqual({each.id for each in cut}, {each.id for each in self.sessions[:100]})

    def test_stop(self) -> None:
        """A stop leaves no timer, whether sessions wait for the provider, or requests for sessions."""
        self.begin(200, DOWN)
        self.clock.advance(LIMIT + 1)
        self.confirmer.check()
        waiting = [Deferred.fromCoroutine(self.confirmer.confirmed(each)) for each in self.sessions]
        self.assertEqual(len(self.clock.getDelayedCalls()), CONCURRENT + 200)
        self.confirmer.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        for each in waiting:
            self.failureResultOf(each)
        self.assertEqual((self.waiting(), self.flushLoggedErrors()), (0, []))
