"""Tests of `tower.web.access.authorization.webhook`; `tests.integration` has a webhook with real TLS."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.client import APIError
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization import webhook
from tower.web.access.authorization.attributes import attributes_of
from tower.web.access.authorization.decision import Decision, Ruling
from tower.web.access.authorization.webhook import CacheTimes, WebhookAuthorizer


class Answering:
    """Answers every review with *status*, or not at all."""

    def __init__(self) -> None:
        self.status: dict[str, Any] | None = {"allowed": True}
        self.asked: list[Any] = []

    async def post(self, body: Any) -> Any:
        """See `Webhook`."""
        self.asked.append(body)
        if self.status is None:
            raise APIError("POST", "/", 503, "closed")
        return {**body, "status": self.status}


class WebhookAuthorizerTests(SynchronousTestCase):
    """Decisions, and how long they are kept."""

    def setUp(self) -> None:
        """Create the authorizer."""
        self.clock, self.hook = Clock(), Answering()
        self.authorizer = WebhookAuthorizer(self.hook, "v1", CacheTimes(10, 3), self.clock.seconds)

    def decide(self, path: bytes = b"/x") -> Decision:
        """Return the decision on a request."""
        found = self.authorizer.authorize(attributes_of(UserInfo("jane"), b"GET", path, "alpha"))
        return self.successResultOf(found) if isinstance(found, Deferred) else found

    def test_times(self) -> None:
        """An allowance is kept for its time, all else for the other time."""
        for status, seconds in (({"allowed": True}, 10), ({"denied": True}, 3), ({}, 3)):
            self.hook.status = status
            first = self.decide()
            asked = len(self.hook.asked)
            self.clock.advance(seconds - 0.5)
            self.assertEqual(self.decide(), first)
            self.assertEqual(len(self.hook.asked), asked)
            self.clock.advance(0.5)
            self.decide()
            self.assertEqual(len(self.hook.asked), asked + 1)
            self.clock.advance(10)

    def test_both(self) -> None:
        """Allowed and denied is denied, with an error."""
        self.hook.status = {"allowed": True, "denied": True, "reason": "r"}
        found = self.decide()
        self.assertEqual((found.ruling, found.reason, found.may_be_kept), (Ruling.DENY, "r", False))
        self.assertIn("both allow and deny", found.error)

    def test_failure(self) -> None:
        """A failure counts as no opinion and is not kept."""
        self.hook.status = None
        self.assertIs(self.decide().ruling, Ruling.NO_OPINION)
        self.assertIn("closed", self.decide().error)
        self.assertEqual((len(self.hook.asked), len(self.authorizer)), (2, 0))

    def test_log(self) -> None:
        """A failure is logged once, and its end too."""
        with capturedLogs() as events:
            for self.hook.status in (None, None, {}, {}, None):
                self.decide(b"/%d" % len(self.hook.asked))
        texts = [formatEvent(event) for event in events]
        failed = "the authorization webhook failed: POST /: answered 503: closed"
        self.assertEqual(texts, [failed, "the authorization webhook answers again", failed])

    def test_bounds(self) -> None:
        """The least recently used decisions are dropped, and reviews with long texts are not kept."""
        self.patch(webhook, "KEPT", 2)
        for path in (b"/a", b"/b", b"/a", b"/c", b"/a", b"/b"):
            self.decide(path)
        self.assertEqual(len(self.hook.asked), 4)  # all but the second and the third /a
        self.decide(b"/" + b"x" * 10_000)
        self.assertEqual(len(self.authorizer), 2)
