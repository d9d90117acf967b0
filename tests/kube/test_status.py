"""Tests for `tower.kube.status`."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import (
    AlreadyExists,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PeerError,
    TowerError,
    Unauthorized,
)
from tower.kube.status import (
    StatusError,
    refusal_of,
    status_line,
    status_object,
    status_response,
    warning_line,
)


class StatusTests(SynchronousTestCase):
    """Failures as users see them."""

    def test_object(self) -> None:
        """The object is a v1 Status whose message ends with the request id."""
        self.assertEqual(
            status_object(StatusError(403, "not for you", details={"name": "alpha"}), "1f"),
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "not for you (request 1f)",
                "reason": "Forbidden",
                "details": {
                    "name": "alpha",
                    "causes": [{"reason": "RequestID", "message": "1f", "field": "request"}],
                },
                "code": 403,
            },
        )

    def test_invalid(self) -> None:
        """For an Invalid Status kubectl shows only causes, so they name the field and the problem."""
        for text, field, message in (
            (
                "spec.connection.ssh.sshPort: 0: must be a port",
                "spec.connection.ssh.sshPort",
                "0: must be a port",
            ),
            ("metadata.name: required: a name", "metadata.name", "required: a name"),
            ("spec: must be an object", "spec", "must be an object"),
            ("force: only for apply patches", "force", "only for apply patches"),
            ("cluster name 'A': must be lower case", "metadata.name", "'A': must be lower case"),
        ):
            status = status_object(StatusError(422, text, details={"kind": "Cluster", "name": "beta"}), "1f")
            (cause,) = status["details"].pop("causes")
            self.assertEqual(
                cause, {"reason": "FieldValueInvalid", "message": f"{message} (request 1f)", "field": field}
            )
            self.assertEqual(status["details"], {"kind": "Cluster", "name": "beta"})
            self.assertEqual(status["message"], f"{text} (request 1f)")

    def test_invalid_causes(self) -> None:
        """The last of several causes ends with the request ID, and the given causes stay unchanged."""
        causes = [{"message": "a", "field": "x"}, {"message": "b", "field": "y"}]
        refusal = StatusError(422, "both", details={"kind": "Cluster", "causes": causes})
        shown = status_object(refusal, "1f")["details"]["causes"]
        self.assertEqual([cause["message"] for cause in shown], ["a", "b (request 1f)"])
        self.assertEqual([cause["message"] for cause in causes], ["a", "b"])

    def test_invalid_without_field(self) -> None:
        """Without a field there are neither kind nor causes, so kubectl shows the message."""
        refusal = StatusError(422, "ttl 9d: too long", details={"kind": "Kubeconfig", "name": "alpha"})
        status = status_object(refusal, "1f")
        self.assertNotIn("details", status)
        self.assertEqual(status["message"], "ttl 9d: too long (request 1f)")

    def test_without_details(self) -> None:
        """Empty details are omitted."""
        self.assertNotIn("details", status_object(StatusError(404, "x")))

    def test_errors(self) -> None:
        """The second level of the error tree decides the code."""
        for error, code, reason in (
            (Unauthorized(), 401, "Unauthorized"),
            (Forbidden("x"), 403, "Forbidden"),
            (NotFound("x"), 404, "NotFound"),
            (AlreadyExists("x"), 409, "AlreadyExists"),
            (Conflict("x"), 409, "Conflict"),
            (Invalid("x"), 422, "Invalid"),
            (ClusterUnreachable("x"), 503, "ServiceUnavailable"),
            (PeerError("x"), 502, "BadGateway"),
            (TowerError("x"), 500, "InternalError"),
        ):
            refusal = refusal_of(error)
            self.assertEqual((refusal.code, refusal.reason, refusal.message), (code, reason, str(error)))

    def test_mistakes_keep_their_text(self) -> None:
        """The text of a foreign exception is not shown to users."""
        self.assertNotIn("secret", refusal_of(ValueError("secret")).message)

    def test_refusal_is_itself(self) -> None:
        """A `StatusError` is returned unchanged."""
        refusal = StatusError(418, "tea")
        self.assertIs(refusal_of(refusal), refusal)
        self.assertEqual(refusal.reason, "Unknown")

    def test_response(self) -> None:
        """The answer is complete and framed."""
        answer = status_response(
            StatusError(429, "slow", details={"retryAfterSeconds": 3}), "1f", close=True, extra=b"Date: x\r\n"
        )
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        self.assertEqual(lines[0], b"HTTP/1.1 429 Too Many Requests")
        for line in (b"Retry-After: 3", b"X-Request-Id: 1f", b"Connection: close", b"Date: x"):
            self.assertIn(line, lines)
        self.assertIn(b"Content-Length: %d" % len(body), lines)
        self.assertEqual(json.loads(body)["code"], 429)

    def test_warning(self) -> None:
        """A warning is one quoted string of bounded length, without what client-go would decode."""
        for text, line in (
            ("plain", b'"plain"'),
            ('a "b" \\', rb'"a \"b\" \\"'),
            ("a\r\nb", rb'"a\\r\\nb"'),
            ("=?utf-8?q?=1b[31m?=", b'"= ?utf-8?q?=1b[31m?="'),
            ("Zürich", '"Zürich"'.encode()),
            ("a" * 5000, b'"' + b"a" * 1023 + '…"'.encode()),
        ):
            self.assertEqual(warning_line(text), b"Warning: 299 tower " + line + b"\r\n")
        self.assertNotIn(b"Warning", status_response(StatusError(404, "x")))
        self.assertIn(b'\r\nWarning: 299 tower "x"\r\n', status_response(StatusError(404, "x"), warn=True))

    def test_unauthorized(self) -> None:
        """A 401 has a WWW-Authenticate field (RFC 9110 section 15.5.2)."""
        self.assertIn(b"\r\nWWW-Authenticate: Bearer", status_response(StatusError(401, "who?")))

    def test_without_body(self) -> None:
        """The answer to a HEAD has the length of the omitted body."""
        answer = status_response(StatusError(404, "x"), without_body=True)
        self.assertTrue(answer.endswith(b"\r\n\r\n"))
        self.assertNotIn(b"Content-Length: 0", answer)

    def test_line_ends_in_names(self) -> None:
        """Text of users stays within JSON."""
        self.assertEqual(
            status_response(StatusError(404, "a\r\nSet-Cookie: b")).count(b"Set-Cookie: b\r\n"), 0
        )

    def test_escaped(self) -> None:
        """A message is fit for terminals and logs, as it is sent and as clients print it."""
        refusal = StatusError(422, "spec.a: no \x9b31m\u2028\r\n\x7f", details={"name": "x\x7f\x9b"})
        self.assertEqual(str(refusal), r"spec.a: no \x9b31m\u2028\r\n\x7f")
        self.assertEqual(refusal.message, str(refusal))
        body = status_response(refusal, "1f").partition(b"\r\n\r\n")[2].decode().removesuffix("\n")
        self.assertTrue(body.isprintable() and body.isascii())
        status = json.loads(body)
        self.assertTrue(status["message"].isprintable())
        self.assertTrue(status["details"]["causes"][0]["message"].isprintable())
        self.assertEqual(status["details"]["name"], "x\x7f\x9b")

    def test_status_line(self) -> None:
        """Unknown codes have a line too."""
        self.assertEqual(status_line(200), b"HTTP/1.1 200 OK\r\n")
        self.assertEqual(status_line(599), b"HTTP/1.1 599 Unknown\r\n")
