"""Tests for `tower.web.gateway.cross_origin`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, Kit, get, ok
from tower.kube.status import StatusError
from tower.web.gateway.cross_origin import LONGEST, CrossOrigin, origin_pattern
from tower.web.outcome import Response

ORIGINS = CrossOrigin([origin_pattern(rb"^https://([a-z]+\.)?example\.com(:|$)")])
ORIGIN = b"Origin: https://ui.example.com"


class CrossOriginTests(SynchronousTestCase):
    """A gateway that pages of example.com may use."""

    def setUp(self) -> None:
        """Make the gateway."""
        self.kit = Kit(ORIGINS.router(self.route))
        self.kit.gateway.protocol = ORIGINS.protocol
        self.answer: Any = Response(200, b"{}")
        self.user = self.kit.connect()

    def route(self, request: Any) -> Any:
        """Answer, reject or relay a request."""
        if self.answer is None:
            return self.kit.relay_it(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ask(self, *fields: bytes, method: bytes = b"GET", user: FakeUser | None = None) -> bytes:
        """Return what a client gets."""
        user = user or self.user
        user.deliver(get(b"/clusters/alpha/api", *fields, method=method))
        sent = bytes(user.sent)
        user.sent.clear()
        return sent

    def allows(self, answer: bytes) -> bool:
        """Return whether a browser gives the answer to the page."""
        return b"\r\nAccess-Control-Allow-Origin: https://ui.example.com\r\n" in answer

    def test_own_answers(self) -> None:
        """Answers and errors of Tower's own have the lines, for allowed origins only."""
        answer = self.ask(ORIGIN)
        self.assertTrue(self.allows(answer))
        self.assertIn(b"\r\nAccess-Control-Allow-Credentials: true\r\n", answer)
        for fields in ((), (b"Origin: https://example.org",), (b"Origin: https://ui.example.com.evil.org",)):
            self.assertNotIn(b"Access-Control", self.ask(*fields))
        self.answer = StatusError(403, "no")
        self.assertTrue(self.allows(self.ask(ORIGIN)))
        self.assertNotIn(b"Access-Control", self.ask())

    def test_preflight(self) -> None:
        """The question before a request is answered without a credential; other OPTIONS are routed."""
        self.answer = StatusError(401, "who?")
        answer = self.ask(ORIGIN, method=b"OPTIONS")
        self.assertTrue(answer.startswith(b"HTTP/1.1 204 No Content\r\n"), answer)
        self.assertTrue(self.allows(answer))
        self.assertNotIn(b"\r\nContent-Length", answer)
        self.assertIn(b" 401 ", self.ask(method=b"OPTIONS"))
        self.assertIn(b" 401 ", self.ask(b"Origin: https://example.org", method=b"OPTIONS"))

    def test_relayed(self) -> None:
        """The lines replace those of the member; the body is unchanged, and other answers too."""
        self.answer = None
        of_member = ok(b"[1]", b"access-control-allow-origin: *", b"X-Own: 1", b"Access-Control-Max-Age: 1")
        self.ask(ORIGIN)
        self.kit.pipe.deliver(of_member)
        answer = bytes(self.user.sent)
        self.assertTrue(self.allows(answer))
        self.assertEqual(answer.lower().count(b"access-control-allow-origin"), 1)
        self.assertNotIn(b"Max-Age", answer)
        self.assertIn(b"\r\nX-Own: 1\r\n", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\n[1]"), answer)
        self.user.sent.clear()
        self.ask()
        self.kit.pipe.deliver(of_member)
        self.assertEqual(bytes(self.user.sent), of_member)

    def test_long_origin(self) -> None:
        """A very long origin is not compared."""
        origin = b"https://%b.example.com" % (b"a" * LONGEST)
        self.assertEqual(ORIGINS.lines(origin), b"")

    def test_whole_hosts(self) -> None:
        """A pattern counts only where it matches the whole host, whichever of its parts are anchored."""
        for pattern, allowed, others in (
            (
                rb"^https://a|https://b$",
                (b"https://a", b"https://a:8443", b"https://b"),
                (b"https://a.evil.example", b"https://ab", b"https://evil-b", b"https://x.https://b"),
            ),
            (
                rb"//example.org:?",
                (b"https://example.org", b"http://example.org:1"),
                (
                    b"https://example.org.evil.net",
                    b"https://example.org1",
                    b"https://evil.net//example.org.x",
                ),
            ),
            (
                rb"//x\.org(:|$)|evil",
                (b"https://x.org", b"https://x.org:1"),
                (b"https://evil.net", b"https://a.evil"),
            ),
            (rb"^https://a|https://a\.b$", (b"https://a", b"https://a.b"), (b"https://a.c",)),
            (rb"(?i)^HTTPS://A(:|$)", (b"https://a", b"https://a:1"), (b"https://a.b",)),
            (
                rb"^https://[^.]+\.a\.org(:\d+)?$",
                (b"https://x.a.org", b"https://x.a.org:1"),
                (b"https://a.org",),
            ),
            (rb"^https?://\[::1\](:|$)", (b"http://[::1]", b"https://[::1]:80"), (b"http://[::1",)),
            (rb"^https://(a|b)\.(org|\1)(:|$)", (b"https://a.a", b"https://a.org:1"), (b"https://a.b",)),
            (rb"^null$", (b"null",), (b"nullx", b"xnull", b"https://null")),
        ):
            origins = CrossOrigin([origin_pattern(pattern)])
            self.assertEqual([each for each in allowed if not origins.lines(each)], [], pattern)
            self.assertEqual([each for each in others if origins.lines(each)], [], pattern)
