"""The authorization webhook over real TLS: answers, failures and lies."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tests.integration.review_webhook import Fault, ReviewWebhook, reviewed
from tower.kube.rest import webhook_client
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.webhook_client import WebhookClient
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import attributes_of
from tower.web.access.authorization.decision import Decision, Ruling
from tower.web.access.authorization.webhook import CacheTimes, WebhookAuthorizer

reactor: Any = _reactor


def constant(answer: tuple[int, bytes] | None) -> Fault:
    """Return a fault with an answer that does not depend on the review."""
    return lambda _: answer


def changed(code: int, change: dict[str, Any]) -> Fault:
    """Return a fault with a changed answer."""
    return lambda review: (code, json.dumps({**reviewed(review), **change}).encode())


def sleeping(_review: dict[str, Any]) -> tuple[int, bytes]:
    """Answer too late."""
    time.sleep(1)
    return 200, b"{}"


class WebhookTests(TestCase):
    """One webhook and a client of it."""

    timeout = 60

    def setUp(self) -> None:
        """Start the webhook; repeat without long delays."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-hook-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.hook = ReviewWebhook(self.folder)
        self.addCleanup(self.hook.stop)
        self.patch(webhook_client, "FIRST_DELAY", 0.05)
        self.authorizer = self.new()

    def new(self, version: str = "v1", **times: float) -> WebhookAuthorizer:
        """Return an authorizer with a new client."""
        client = WebhookClient(reactor, RestConfig.from_kubeconfig(self.hook.kubeconfig, reactor, {}))
        self.addCleanup(client.close)
        return WebhookAuthorizer(client, version, CacheTimes(**times), reactor.seconds)

    async def decide(self, user: str, target: bytes = b"/x") -> Decision:
        """Return the decision on a request of *user*."""
        answer = self.authorizer.authorize(attributes_of(UserInfo(user), b"GET", target, "alpha"))
        return await answer if isinstance(answer, Deferred) else answer

    def run_(self, test: Coroutine[Any, Any, None]) -> Deferred[None]:
        """Return the Deferred of a test."""
        return Deferred.fromCoroutine(test)

    def test_answers(self) -> Deferred[None]:
        """All answers, each requested once."""
        return self.run_(self.answers())

    async def answers(self) -> None:
        """See `test_answers`."""
        for user, ruling, reason in (
            ("hook-allow", Ruling.ALLOW, "the hook allows"),
            ("hook-deny", Ruling.DENY, "the hook denies"),
            ("hook-silent", Ruling.NO_OPINION, "the hook has no opinion"),
            ("jane", Ruling.NO_OPINION, ""),
        ):
            for _ in range(2):
                found = await self.decide(user)
                self.assertEqual((found.ruling, found.reason, found.error), (ruling, reason, ""))
        self.assertEqual(len(self.hook.reviews), 4)
        await self.decide("jane", b"/" + b"x" * 10_000)
        await self.decide("jane", b"/" + b"x" * 10_000)
        self.assertEqual((len(self.hook.reviews), len(self.authorizer)), (6, 4))

    def test_old_version(self) -> Deferred[None]:
        """The groups have another key in v1beta1, and nothing is kept without a time."""
        return self.run_(self.old_version())

    async def old_version(self) -> None:
        """See `test_old_version`."""
        self.authorizer = self.new("v1beta1", authorized=0, unauthorized=0)
        for _ in range(2):
            self.assertTrue((await self.decide("hook-allow")).is_allowed)
        self.assertEqual(len(self.hook.reviews), 2)
        self.assertEqual(self.hook.reviews[0][1]["apiVersion"], "authorization.k8s.io/v1beta1")

    def test_transient(self) -> Deferred[None]:
        """Errors 429, 500 and 504 and broken connections are repeated, five times at most."""
        return self.run_(self.transient())

    async def transient(self) -> None:
        """See `test_transient`."""
        faults = [(500, b"{}"), (429, b"{}"), (504, b""), None]
        self.hook.faults += [constant(fault) for fault in faults]
        self.assertTrue((await self.decide("hook-allow")).is_allowed)
        self.assertGreaterEqual(len(self.hook.reviews), 5)
        self.hook.reviews.clear()
        self.hook.faults += [lambda _: (500, b'{"message": "no"}')] * 5
        found = await self.decide("jane")
        self.assertIs(found.ruling, Ruling.NO_OPINION)
        self.assertIn("answered 500", found.error)
        self.assertEqual(len(self.hook.reviews), 5)
        self.assertEqual((await self.decide("jane")).error, "")

    def test_lies(self) -> Deferred[None]:
        """A wrong answer counts as no opinion, and is neither repeated nor kept."""
        return self.run_(self.lies())

    async def lies(self) -> None:
        """See `test_lies`."""
        for code, change in (
            (403, {}),
            (200, {"kind": "TokenReview"}),
            (200, {"apiVersion": "authorization.k8s.io/v1beta1"}),
            (200, {"status": None}),
            (200, {"status": {"allowed": "true"}}),
            (200, {"status": {"allowed": 1}}),
        ):
            self.hook.faults.append(changed(code, change))
            found = await self.decide("hook-allow")
            self.assertIs(found.ruling, Ruling.NO_OPINION, change)
            self.assertIn("the authorization webhook failed: ", found.error)
        self.hook.faults.append(lambda _: (200, b"["))
        self.assertIs((await self.decide("hook-allow")).ruling, Ruling.NO_OPINION)
        self.assertEqual((len(self.hook.reviews), len(self.authorizer)), (7, 0))

    def test_dead(self) -> Deferred[None]:
        """A webhook that has closed, or another one with its port, fails at once."""
        return self.run_(self.dead())

    async def dead(self) -> None:
        """See `test_dead`."""
        (self.folder / "other").mkdir()
        other = ReviewWebhook(self.folder / "other")
        self.addCleanup(other.stop)
        config, right = json.loads(self.hook.kubeconfig.read_text()), other.kubeconfig.read_text()
        config["clusters"][0]["cluster"]["server"] = json.loads(right)["clusters"][0]["cluster"]["server"]
        self.hook.kubeconfig.write_text(json.dumps(config))
        self.authorizer = self.new()
        began = time.monotonic()
        found = await self.decide("hook-allow")
        self.assertIn("certificate", found.error)
        self.assertEqual(other.reviews, [])
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1/authorize"
        self.hook.kubeconfig.write_text(json.dumps(config))
        self.authorizer = self.new()
        self.assertIn("no answer", (await self.decide("hook-allow")).error)
        self.assertLess(time.monotonic() - began, 10)

    def test_slow(self) -> Deferred[None]:
        """A webhook that does not answer in time counts as no opinion."""
        return self.run_(self.slow())

    async def slow(self) -> None:
        """See `test_slow`."""
        self.patch(webhook_client, "TIMEOUT", 0.5)
        self.authorizer = self.new()
        self.hook.faults.append(sleeping)
        found = await self.decide("hook-allow")
        self.assertIn("0.5 s", found.error)
        self.assertTrue((await self.decide("hook-allow")).is_allowed)
