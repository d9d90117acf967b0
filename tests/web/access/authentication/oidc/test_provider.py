"""Tests of `tower.web.access.authentication.oidc.provider`: keys that change, and a provider that lies."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from OpenSSL.SSL import Error as SSLError
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import DOCUMENT, ISSUER, KEYS, URL, ProviderAgent, ServedDocument, key_set
from tests.fakes.log_lines import logged_lines
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.access.authentication.oidc.provider import (
    DOCUMENT_LIMIT,
    PAUSE,
    REFRESH,
    RETRY,
    TIMEOUT,
    WAITING_LIMIT,
    OIDCProvider,
    ProviderDocuments,
)


class ProviderTests(SynchronousTestCase):
    """One provider with an accelerated clock."""

    def setUp(self) -> None:
        """Make the agent."""
        self.clock: Any = Clock()
        self.agent = ProviderAgent()
        self.changes = 0

    def changed(self) -> None:
        """Count new keys."""
        self.changes += 1

    def started(self, issuer: IssuerSettings = ISSUER) -> OIDCProvider:
        """Return a started provider."""
        documents = ProviderDocuments(self.clock, self.agent)(issuer)
        provider = OIDCProvider(issuer, self.clock, documents, self.changed)
        provider.startService()
        self.addCleanup(provider.stopService)
        return provider

    def problem(self, url: str, answer: Any) -> str:
        """Return the problem with an answer, after which a good one is used again."""
        good, self.agent.answers[url] = self.agent.answers[url], answer
        provider = self.started()
        self.clock.advance(TIMEOUT)
        self.assertIsNone(provider.keys)
        found = provider.problem
        self.agent.answers[url] = good
        self.clock.advance(RETRY)
        assert provider.keys is not None
        self.assertEqual((len(provider.keys), provider.problem), (1, ""))
        provider.stopService()
        return found

    def test_start(self) -> None:
        """The keys are got at once, and again at `REFRESH`."""
        provider = self.started()
        assert provider.keys is not None
        self.assertEqual(self.agent.asked, [DOCUMENT, KEYS])
        self.agent.rotate("first", "second")
        self.clock.pump([RETRY] * int(REFRESH / RETRY - 1))
        self.assertEqual((len(self.agent.asked), len(provider.keys)), (2, 1))
        self.clock.advance(RETRY)
        self.assertEqual((len(self.agent.asked), len(provider.keys), self.changes), (4, 2, 2))

    def test_keys_url(self) -> None:
        """Settings may name the URL of the keys; the discovery document is not requested then."""
        self.assertIsNotNone(self.started(evolve(ISSUER, keys_url=KEYS)).keys)
        self.assertEqual(self.agent.asked, [KEYS])

    def test_discovery_url(self) -> None:
        """The discovery document may be elsewhere, but still names the issuer."""
        elsewhere = "https://inside.example/document"
        self.agent.answers[elsewhere] = {"issuer": URL, "jwks_uri": KEYS}
        self.assertIsNotNone(self.started(evolve(ISSUER, discovery_url=elsewhere)).keys)
        self.agent.answers[elsewhere] = {"issuer": elsewhere, "jwks_uri": KEYS}
        self.assertIsNone(self.started(evolve(ISSUER, discovery_url=elsewhere)).keys)

    def test_lies_in_discovery(self) -> None:
        """Keys are not used if the discovery document is not this issuer's."""
        answer: Any
        for answer, text in (
            ({"issuer": URL + "/", "jwks_uri": KEYS}, "issuer did not match"),
            ({"jwks_uri": KEYS}, "issuer did not match"),
            ({"issuer": [URL], "jwks_uri": KEYS}, "issuer did not match"),
            ({"issuer": URL}, "no jwks_uri"),
            ({"issuer": URL, "jwks_uri": KEYS.replace("https", "http")}, "jwks_uri with https"),
            ({"issuer": URL, "jwks_uri": 7}, "no jwks_uri"),
            ({"issuer": URL, "jwks_uri": "https://a b/"}, "not a valid URL"),
            ([], "not a discovery document"),
        ):
            self.assertIn(text, self.problem(DOCUMENT, answer))

    def test_bad_answers(self) -> None:
        """A redirect, an error, another body or a long one, and no answer give no keys."""
        page = ServedDocument(b"<html>", 200, "text/html")
        moved = ServedDocument(b"", 302, location="https://evil.example/")
        for url in (DOCUMENT, KEYS):
            answer: Any
            for answer, text in (
                (ServedDocument(b"", 500), "answered 500"),
                (ServedDocument(b"", 404), "answered 404"),
                (ServedDocument(b"", 204), "answered 204"),
                (moved, "answered 302 (redirects are not followed)"),
                (page, "something that is not JSON"),
                (ServedDocument(b""), "something that is not JSON"),
                (ServedDocument(b"[" * 100_000), "something that is not JSON"),
                (ServedDocument(b"{" + b" " * DOCUMENT_LIMIT), f"more than {DOCUMENT_LIMIT} B"),
                (ServedDocument(b" " * (9 << 20)), "more than"),
                (ConnectError(), "An error occurred while connecting"),
                (
                    SSLError([("ssl", "", "certificate verify failed")]),
                    "set --oidc-ca-file, or certificateAuth",
                ),
                (None, f"no answer within {TIMEOUT:g} s"),
            ):
                self.assertIn(text, self.problem(url, answer))
        self.assertNotIn("https://evil.example/", self.agent.asked)
        value: Any
        for value in ({"keys": []}, {}, "x"):
            self.assertIn(f"the keys at {KEYS} cannot be used", self.problem(KEYS, value))

    def test_keys_remain(self) -> None:
        """A provider that ends, or lies later, does not change the keys in use."""
        provider = self.started()
        keys = provider.keys
        answer: Any
        for answer in (ServedDocument(b"", 500), {"keys": []}, None, ConnectError()):
            self.agent.answers[KEYS] = answer
            self.clock.pump([RETRY] * 70)
            self.assertIs(provider.keys, keys)
            self.assertNotEqual(provider.problem, "")
        self.agent.rotate("second")
        self.clock.pump([RETRY, TIMEOUT])
        self.assertIsNot(provider.keys, keys)
        self.assertEqual(provider.problem, "")

    def test_newer_keys(self) -> None:
        """All callers that require newer keys wait for one attempt."""
        provider = self.started()
        answer: Deferred[Any] = Deferred()
        self.agent.answers[KEYS] = answer
        waiting = [provider.newer_keys() for _ in range(5)]
        self.assertEqual(self.agent.asked, [DOCUMENT, KEYS] * 2)
        for each in waiting:
            self.assertNoResult(each)
        self.agent.rotate("second")
        answer.callback(ServedDocument(b"", 500))
        for each in waiting:
            self.successResultOf(each)
        self.clock.advance(PAUSE)

    def test_rate(self) -> None:
        """Tokens with unknown keys, however many, cause one attempt in `PAUSE` s."""
        provider = self.started()
        before = len(self.agent.asked)
        for _ in range(600):
            provider.newer_keys()
            self.clock.advance(0.1)
        self.assertLessEqual((len(self.agent.asked) - before) / 2, 60 / PAUSE + 2)

    def test_bounded(self) -> None:
        """Only so many wait, and one that is canceled does not."""
        provider = self.started()
        self.agent.answers[KEYS] = None
        waiting = [provider.newer_keys() for _ in range(WAITING_LIMIT)]
        self.successResultOf(provider.newer_keys())
        waiting[0].addErrback(lambda _: None)
        waiting[0].cancel()
        again = provider.newer_keys()
        self.assertNoResult(again)
        provider.stopService()
        self.successResultOf(again)
        self.successResultOf(provider.newer_keys())
        self.clock.advance(REFRESH)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_log(self) -> None:
        """A problem is logged once, and its end."""
        lines = logged_lines(self)
        self.agent.answers[KEYS] = ServedDocument(b"", 500)
        self.started()
        self.clock.pump([RETRY] * 20)
        self.agent.answers[KEYS] = key_set("first")
        self.clock.pump([RETRY] * 80)
        self.assertEqual(
            lines,
            [
                f"OIDC issuer {URL}: {KEYS} answered 500; it is tried again every 10 s",
                f"OIDC issuer {URL}: its keys are in use",
            ],
        )
