"""Tests for `tower.web.gateway.cross_origin`."""

from __future__ import annotations

import re
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, Kit, get, ok
from tower.kube.status import StatusError
from tower.web.gateway.cross_origin import LONGEST, CrossOrigin
from tower.web.outcome import Response

ORIGINS = CrossOrigin([re.compile(rb"^https://([a-z]+\.)?example\.com(:|$)")])
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
