"""Tests of `tower.kube.rest.webhook_client`; `tests.integration` has a webhook with real TLS."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.apiservers import Member
from tower.errors import ConfigurationError
from tower.kube.client import APIError
from tower.kube.head_fields import Upstream
from tower.kube.rest.webhook_client import ATTEMPTS, WebhookClient


class Config:
    """Access to the member as a webhook, whose credential may be renewed."""

    def __init__(self, member: Member, prefix: bytes = b"/hook") -> None:
        self.open = member.open
        self.address = "hook:443/hook"
        self.renewed = False
        self.problem = ""
        self._tokens = [
            Upstream(prefix, b"Host: hook\r\n", b"Authorization: Bearer %b\r\n" % token)
            for token in (b"old", b"new")
        ]

    def upstream(self) -> Upstream:
        """Return the current credential."""
        return self._tokens[self.renewed]

    async def prepare(self) -> None:
        """Fail if there is a problem."""
        if self.problem:
            raise ConfigurationError(self.problem)

    async def renew(self, rejected: Upstream) -> bool:
        """Use the other credential, once."""
        is_first, self.renewed = not self.renewed, True
        return is_first


class WebhookClientTests(SynchronousTestCase):
    """Requests and their repetitions."""

    def setUp(self) -> None:
        """Create the client."""
        self.member = Member()
        self.config = Config(self.member)
        self.client = WebhookClient(self.member.clock, self.config, lambda: 0.0)  # type: ignore[arg-type]

    def ask(self) -> Deferred[Any]:
        """Post, and have it answered."""
        result: Deferred[Any] = Deferred.fromCoroutine(self.client.post({"a": 1}))
        self.member.serve()
        return result

    def test_url(self) -> None:
        """The request goes to the server's URL, with upstream's timeout."""
        self.member.answer = lambda _: (200, b'{"b": 2}')
        self.assertEqual(self.successResultOf(self.ask()), {"b": 2})
        self.assertEqual(self.member.requests[0].uri, b"/hook?timeout=30s")
        self.config = Config(self.member, b"")
        self.client = WebhookClient(self.member.clock, self.config)  # type: ignore[arg-type]
        self.successResultOf(self.ask())
        self.assertEqual(self.member.requests[-1].uri, b"/?timeout=30s")

    def test_repeated(self) -> None:
        """Transient errors are repeated with growing delays, a fixed number of times."""
        self.member.answer = lambda _: (500, b"{}")
        result = self.ask()
        for delay in (0.5, 0.75, 1.125, 1.6875):
            self.assertNoResult(result)
            self.member.clock.advance(delay)
            self.member.serve()
        self.assertEqual(self.failureResultOf(result, APIError).value.code, 500)
        self.assertEqual(len(self.member.requests), ATTEMPTS)

    def test_not_repeated(self) -> None:
        """Other errors are final, with the webhook's address and words."""
        for code, body, text in (
            (403, b'{"message": "no\\n"}', 'POST hook:443/hook: answered 403: the webhook reports: "no\\n"'),
            (404, b"", "POST hook:443/hook: answered 404: an empty body"),
            (200, b"[", 'POST hook:443/hook: answered 200: the webhook reports: "["'),
        ):
            self.member.answer = lambda _, code=code, body=body: (code, body)  # type: ignore[misc]
            error = self.failureResultOf(self.ask(), APIError).value
            self.assertEqual(str(error), text)
        self.assertEqual(len(self.member.requests), 3)

    def test_renewed(self) -> None:
        """A rejected credential is renewed once."""
        self.member.answer = lambda request: (
            (200, b"{}") if request.getHeader(b"authorization") == b"Bearer new" else (401, b"{}")
        )
        self.assertEqual(self.successResultOf(self.ask()), {})
        self.member.answer = lambda _: (401, b"{}")
        self.failureResultOf(self.ask(), APIError)

    def test_problem(self) -> None:
        """A file or plugin that fails is the error."""
        self.config.problem = "the plugin fails"
        error = self.failureResultOf(self.ask(), APIError).value
        self.assertIn("the plugin fails", str(error))
