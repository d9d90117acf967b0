"""Tests of `tower.web.ports.import_page`."""

from __future__ import annotations

from typing import Any

import yaml
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from tests.fakes.api import ApiTestCase
from tests.fakes.requests import FakeChannel, FakeRequest
from tower.errors import TowerError
from tower.kube.status import StatusError, refusal_of
from tower.member.manifest.settings import AgentSettings
from tower.web.outcome import Response
from tower.web.ports import import_page
from tower.web.ports.import_page import BURST, HIDDEN, RATE, ImportPage, no_imports


class ImportPageTests(ApiTestCase):
    def setUp(self) -> None:
        """Make the page and a URL."""
        super().setUp()
        self.add("alpha")
        self.page = ImportPage(self.issuer, self.clock.seconds)
        making = Deferred.fromCoroutine(self.issuer.import_url("alpha", 600.0, 1, AgentSettings()))
        self.url = self.successResultOf(making).url
        self.target = self.url.removeprefix("https://tower.example.org:8443").encode()

    def ask(self, target: bytes, method: bytes = b"GET", address: str = "192.0.2.1") -> Any:  # type: ignore[override]
        """Return the answer, or its error as a Status."""
        request = FakeRequest(target, method, channel=FakeChannel(address))
        try:
            answer = self.page(request)
        except TowerError as e:
            return refusal_of(e)
        finally:
            self.assertEqual(request.target, HIDDEN)
        if isinstance(answer, Deferred):
            results: list[Any] = []
            answer.addBoth(results.append)
            (result,) = results
            return result if isinstance(result, Response) else refusal_of(result.value)
        return answer

    def refused(self, code: int, *arguments: Any, **options: Any) -> StatusError:
        """Return the Status of a request that must be rejected."""
        answer = self.ask(*arguments, **options)
        assert isinstance(answer, StatusError), answer
        self.assertEqual(answer.code, code)
        return answer

    def test_manifest(self) -> None:
        """A GET without credentials gets the manifest, which no cache stores."""
        with capturedLogs() as events:
            answer = self.ask(self.target)
        self.assertEqual(answer.code, 200)
        self.assertIn((b"Cache-Control", b"no-store"), answer.headers)
        objects = list(yaml.safe_load_all(answer.body))
        (token,) = (item["stringData"]["token"] for item in objects if "stringData" in item)
        self.successResultOf(self.tokens.enrol("alpha", token, "SHA256:a", b""))
        (line,) = [str(formatEvent(event)) for event in events]
        self.assertIn("alpha was fetched by 192.0.2.1", line)
        self.assertNotIn(self.target.decode().rsplit("/", 1)[1], str(events))
        self.assertNotIn(token, str(events))

    def test_second(self) -> None:
        """A second fetch is 410 with a Status, and a warning in the log."""
        self.ask(self.target)
        for method in (b"GET", b"HEAD"):
            with capturedLogs() as events:
                error = self.refused(410, self.target, method, address="198.51.100.7")
            self.assertEqual(error.reason, "Gone")
            self.assertIn("tower join alpha --output-url", error.message)
            (event,) = [event for event in events if event["log_level"] is LogLevel.warn]
            self.assertIn("198.51.100.7", str(formatEvent(event)))

    def test_expired(self) -> None:
        """An expired URL is 410."""
        self.clock.advance(600)
        self.assertIn("expired", self.refused(410, self.target).message)

    def test_head(self) -> None:
        """A HEAD gets the status of a GET and does not use the URL up."""
        for _ in range(3):
            answer = self.ask(self.target, b"HEAD")
            self.assertEqual((answer.code, answer.body), (200, b""))
        self.assertEqual(self.ask(self.target).code, 200)

    def test_other_methods(self) -> None:
        """Any other method is rejected and does not use the URL up."""
        for method in (b"POST", b"DELETE", b"PUT"):
            self.refused(405, self.target, method)
        self.assertEqual(self.ask(self.target).code, 200)

    def test_unknown(self) -> None:
        """Any other path is 404, with the same text for all, and without the name of a cluster."""
        texts = {
            self.refused(404, b"/import/" + secret).message
            for secret in (b"", b"x", b"A" * 43, b"A" * 44, b"%41" * 43, b"../" * 10, self.target)
        }
        self.assertEqual(len(texts), 1)
        self.assertNotIn("alpha", texts.pop())

    def test_guesses(self) -> None:
        """An address can guess at a limited rate; others, and the same one later, are served."""
        for _ in range(int(BURST)):
            self.refused(404, b"/import/x", address="2001:db8::1")
        error = self.refused(429, self.target, address="2001:db8::2")
        self.assertEqual(error.details["retryAfterSeconds"], 10)
        self.refused(404, b"/import/x")
        self.clock.advance(1 / RATE)
        self.assertEqual(self.ask(self.target, address="2001:db8::2").code, 200)

    def test_successes(self) -> None:
        """Fetching many URLs from one address is not guessing."""
        for _ in range(3 * int(BURST)):
            making = Deferred.fromCoroutine(self.issuer.import_url("alpha", 600.0, 1, AgentSettings()))
            url = self.successResultOf(making).url
            self.assertEqual(self.ask(b"/import/" + url.rsplit("/", 1)[1].encode()).code, 200)

    def test_addresses(self) -> None:
        """The number of remembered addresses is limited."""
        self.patch(import_page, "ADDRESSES", 3)
        for number in range(9):
            self.refused(404, b"/import/x", address=f"192.0.2.{number}")
        self.assertEqual(len(self.page._buckets), 3)

    def test_removed_meanwhile(self) -> None:
        """A cluster that was removed has no manifest."""
        self.successResultOf(self.clusters.remove("alpha"))
        self.refused(404, self.target)

    def test_no_imports(self) -> None:
        """A port without imports answers 404."""
        self.assertRaises(StatusError, no_imports, FakeRequest(self.target))
