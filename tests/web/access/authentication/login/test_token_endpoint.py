"""Tests of `tower.web.access.authentication.login.token_endpoint`."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import ISSUER, URL, ProviderAgent, ServedDocument
from tower.cloud.errors import CloudUnreachable
from tower.web.access.authentication.login.token_endpoint import (
    REFRESH_TOKEN_LIMIT,
    RETRY,
    TIMEOUT,
    ProviderRefused,
    ProviderUnavailable,
    RefreshedTokens,
    TokenEndpoint,
)
from tower.web.access.authentication.oidc.provider import OIDCProvider

TOKEN, REVOCATION, USERINFO = f"{URL}/token", f"{URL}/revoke", f"{URL}/userinfo"


class RecordingAgent(ProviderAgent):
    """Keeps the forms of requests.

    :ivar forms: of all requests; `tokens`: in their header.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[dict[str, list[str]]] = []
        self.tokens: list[bytes] = []

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Any:
        """Answer a request."""
        self.tokens += (headers.getRawHeaders(b"authorization") if headers else None) or []
        if bodyProducer is None:
            return super().request(method, uri, headers, bodyProducer)
        written: list[bytes] = []
        bodyProducer.startProducing(type("Consumer", (), {"write": lambda _, data: written.append(data)})())
        self.forms.append(parse_qs(b"".join(written).decode()))
        return super().request(method, uri, headers, bodyProducer)


class TokenEndpointTests(SynchronousTestCase):
    """One provider."""

    def setUp(self) -> None:
        """Make the provider."""
        clock: Any = Clock()
        self.clock = clock
        self.agent = RecordingAgent()
        self.endpoint = TokenEndpoint(clock, self.agent)
        fetch: Any = None
        self.provider = OIDCProvider(ISSUER, clock, fetch, lambda: None)
        self.provider.document = {"token_endpoint": TOKEN, "revocation_endpoint": REVOCATION}

    def refresh(self) -> Deferred[RefreshedTokens]:
        """Use a refresh token."""
        return Deferred.fromCoroutine(self.endpoint.refresh(self.provider, "cli", "r-1"))

    def test_tokens(self) -> None:
        """The answer has an access token; the other ones may be missing."""
        for answer, tokens in (
            (
                {"id_token": "i", "refresh_token": "r-2", "access_token": "a"},
                RefreshedTokens("i", "r-2", "a"),
            ),
            ({"access_token": "a"}, RefreshedTokens("", "", "a")),
        ):
            self.agent.answers[TOKEN] = answer
            self.assertEqual(self.successResultOf(self.refresh()), tokens)
        form = {"grant_type": ["refresh_token"], "refresh_token": ["r-1"], "client_id": ["cli"]}
        self.assertEqual(self.agent.forms[0], form)

    def test_refused(self) -> None:
        """Errors about the token are final, and do not quote it."""
        for error in ("invalid_grant", "invalid_request", "access_denied"):
            self.agent.answers[TOKEN] = ServedDocument(json.dumps({"error": error}).encode(), 400)
            failure = self.failureResultOf(self.refresh(), ProviderRefused)
            self.assertNotIn("r-1", str(failure.value))

    def test_unavailable(self) -> None:
        """Other answers do not end a session."""
        answers: tuple[Any, ...] = (
            ServedDocument(b"", 500),
            ServedDocument(b'{"error": "invalid_grant"}', 503),
            ServedDocument(b'{"error": "invalid_client"}', 401),
            ServedDocument(b"<html>", 302),
            {"id_token": 7, "access_token": "a"},
            {"access_token": "a", "refresh_token": "x" * (REFRESH_TOKEN_LIMIT + 1)},
            {"access_token": "a\r\nb"},
            {"access_token": ""},
            {"error": "invalid_grant"},
            {},
            [],
            ServedDocument(b"<html>Log in to the wireless network", 200),
        )
        for answer in answers:
            self.agent.answers[TOKEN] = answer
            self.failureResultOf(self.refresh(), ProviderUnavailable)
        self.agent.answers[TOKEN] = ConnectError()
        self.failureResultOf(self.refresh(), CloudUnreachable)
        self.agent.answers[TOKEN] = None
        waiting = self.refresh()
        self.clock.advance(TIMEOUT)
        self.assertNoResult(waiting)
        self.clock.advance(TIMEOUT)
        self.failureResultOf(waiting, CloudUnreachable)
        for document in ({}, {"token_endpoint": "http://issuer.example/token"}, {"token_endpoint": 7}):
            self.provider.document = document
            self.failureResultOf(self.refresh(), ProviderUnavailable)

    def test_userinfo(self) -> None:
        """The claims of an access token's user; other answers have no user."""
        self.provider.document = {"userinfo_endpoint": USERINFO}
        self.agent.answers[USERINFO] = {"sub": "jane", "groups": ["dev"]}
        asking = Deferred.fromCoroutine(self.endpoint.userinfo(self.provider, "a"))
        self.assertEqual(self.successResultOf(asking), {"sub": "jane", "groups": ["dev"]})
        self.assertEqual(self.agent.tokens, [b"Bearer a"])
        answers: tuple[Any, ...] = ({}, {"sub": 7}, [])
        for answer in (*answers, ServedDocument(b"eyJ.e30.x", 200), ServedDocument(b"{}", 401)):
            self.agent.answers[USERINFO] = answer
            asking = Deferred.fromCoroutine(self.endpoint.userinfo(self.provider, "a"))
            self.failureResultOf(asking, ProviderUnavailable)

    def test_secret(self) -> None:
        """The client's secret, if it has one, is in the form."""
        clock: Any = self.clock
        self.endpoint = TokenEndpoint(clock, self.agent, {URL: "s"})
        self.agent.answers[TOKEN] = {"access_token": "a"}
        self.successResultOf(self.refresh())
        self.assertEqual(self.agent.forms[0]["client_secret"], ["s"])

    def test_lost_answer(self) -> None:
        """A request without an answer is sent again at once: the provider may have changed the token."""
        answers = iter([ConnectError(), {"access_token": "a", "refresh_token": "r-2"}])
        self.agent.answers[TOKEN] = lambda: next(answers)
        self.assertEqual(self.successResultOf(self.refresh()), RefreshedTokens("", "r-2", "a"))
        self.assertEqual(self.agent.forms[0], self.agent.forms[1])

    def test_revoke(self) -> None:
        """A refresh token is revoked, if the provider supports that."""
        self.agent.answers[REVOCATION] = ServedDocument(b"", 200)
        for document, count in ((self.provider.document, 1), ({"token_endpoint": TOKEN}, 1)):
            self.provider.document = document
            revoking = Deferred.fromCoroutine(self.endpoint.revoke(self.provider, "cli", "r-1"))
            self.successResultOf(revoking)
            self.assertEqual(len(self.agent.forms), count)
        self.assertEqual(self.agent.forms[0]["token"], ["r-1"])

    def test_revoke_again(self) -> None:
        """Without an answer, and after 503, the token is revoked once more after a pause."""
        for first in (ServedDocument(b"", 503), ConnectError()):
            answers = iter([first, ServedDocument(b"", 200)])
            self.agent.answers[REVOCATION] = lambda answers=answers: next(answers)
            revoking = Deferred.fromCoroutine(self.endpoint.revoke(self.provider, "cli", "r-1"))
            self.assertNoResult(revoking)
            self.clock.advance(RETRY)
            self.successResultOf(revoking)
        self.assertEqual(len(self.agent.forms), 4)

    def test_not_revoked(self) -> None:
        """Only 200 confirms that a token is revoked."""
        unsupported = json.dumps({"error": "unsupported_token_type"}).encode()
        for answer, text in (
            (ServedDocument(unsupported, 400), "400 (unsupported_token_type)"),
            (ServedDocument(b"", 503), "503"),
            (ServedDocument(b"", 302), "302"),
        ):
            self.agent.answers[REVOCATION] = answer
            revoking = Deferred.fromCoroutine(self.endpoint.revoke(self.provider, "cli", "r-1"))
            self.clock.advance(RETRY)
            error = self.failureResultOf(revoking, ProviderUnavailable).value
            self.assertIn(f"its revocation endpoint answered {text}", str(error))
