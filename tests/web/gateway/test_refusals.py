"""Tests of `tower.web.gateway.refusals`: Statuses for the client."""

from __future__ import annotations

import json

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get
from tower.errors import AlreadyExists, Forbidden, NotFound, Unauthorized
from tower.kube.status import StatusError
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome


class RefusalTests(SynchronousTestCase):
    """Errors of a router."""

    def test_errors(self) -> None:
        """Errors become Statuses with a request ID."""
        for error, code, reason in (
            (Unauthorized("who?", "secret"), 401, "Unauthorized"),
            (Forbidden("no"), 403, "Forbidden"),
            (NotFound("cluster x"), 404, "NotFound"),
            (AlreadyExists("cluster x"), 409, "AlreadyExists"),
            (StatusError(429, "slow down", details={"retryAfterSeconds": 1}), 429, "TooManyRequests"),
        ):

            def router(request: Request, error: Exception = error) -> Outcome:
                raise error

            kit = Kit(router)
            kit.user.deliver(get())
            head, _, body = kit.user.taken().partition(b"\r\n\r\n")
            status = json.loads(body)
            self.assertTrue(head.startswith(b"HTTP/1.1 %d " % code))
            self.assertEqual((status["code"], status["reason"]), (code, reason))
            self.assertIn(kit.requests[0].request_id, status["message"])
            self.assertNotIn(b"secret", body)
            self.assertFalse(kit.user.closing)
            self.assertEqual(kit.gateway.failures, 1)

    def test_warnings(self) -> None:
        """Clients that show no Status text get it as a warning, without the request ID; kubectl once."""
        kubectl = b"User-Agent: kubectl/v1.27.16 (linux/amd64) kubernetes/51e33fa"
        for target, code, field, warned in (
            (b"/api?timeout=32s", 404, kubectl, True),
            (b"/clusters/alpha/apis", 502, kubectl, True),
            (b"/clusters/alpha/openapi/v3/apis/apps/v1", 504, kubectl, True),
            (b"/clusters/alpha/api/v1/pods", 503, kubectl, False),
            (b"/clusters/alpha/api/v1/pods", 401, kubectl, False),
            (b"/clusters/alpha/api/v1/pods", 503, b"User-Agent: argocd", True),
            (b"/clusters/alpha/api/v1/pods", 401, b"A: b", True),
            (b"/clusters/alpha/api/v1/pods", 502, b"A: b", False),
            (b"/clusters/alpha/targets/web/api", 502, b"A: b", False),
        ):

            def router(request: Request, code: int = code) -> Outcome:
                raise StatusError(code, 'no "agent"')

            kit = Kit(router)
            kit.user.deliver(get(target, field))
            lines = kit.user.taken().partition(b"\r\n\r\n")[0].split(b"\r\n")
            found = [line for line in lines if line.startswith(b"Warning: ")]
            expected = [b'Warning: 299 tower "no \\"agent\\""'] if warned else []
            self.assertEqual(found, expected, (target, code, field))

    def test_mistake(self) -> None:
        """Internal errors are a 500 without their text, and are logged."""
        kit = Kit(lambda request: 1 // 0)
        kit.user.deliver(get() + get())
        kit.take_turns()
        answer = kit.user.taken()
        self.assertEqual(answer.count(b"HTTP/1.1 500 "), 2)
        self.assertNotIn(b"division", answer)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_late_error(self) -> None:
        """A Deferred that fails is answered too."""
        verdict: Deferred[Outcome] = Deferred()
        kit = Kit(lambda request: verdict)
        kit.user.deliver(get())
        verdict.errback(NotFound("there is no cluster x"))
        self.assertIn(b"there is no cluster x", kit.user.taken())
