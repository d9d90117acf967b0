"""Tests for `tower.web.access.access_log`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import IDENTITY, Kit, get, ok
from tower.errors import Unauthorized
from tower.web.access.access_log import DELAY, LONGEST_PATH, MANY, UNAUTHENTICATED, AccessLog
from tower.web.access.authentication.identity import ANONYMOUS
from tower.web.gateway.request import Request
from tower.web.outcome import RawStream, Relay, Response

NOON = 1_795_348_800.25
PODS = b"/clusters/alpha/api/v1/namespaces/default/pods"
TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"


class AccessLogTests(SynchronousTestCase):
    """One line for each request."""

    def setUp(self) -> None:
        """Make a gateway with an access log."""
        self.clock = Clock()
        self.clock.rightNow = NOON
        self.lines: Any = []
        self.puts: list[int] = []
        log: Any = SimpleNamespace(put=self.put)
        self.outcome: Any = Relay("alpha", b"/clusters/alpha")
        self.kit: Any = Kit(self.route)
        self.user_of_request: Any = self.kit.jane
        monotonic: Any = self.clock
        self.kit.gateway.observer = AccessLog(monotonic, log, self.clock.seconds)
        self.user = self.kit.user

    def route(self, request: Request) -> Any:
        """Return or raise `outcome`."""
        if isinstance(self.outcome, Unauthorized):
            raise self.outcome
        request.identity = self.user_of_request
        request.audit("alpha")
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def put(self, lines: bytes, count: int) -> None:
        """Record a batch."""
        self.assertEqual(lines.count(b"\n"), count)
        self.puts.append(count)
        self.lines += lines.splitlines(keepends=True)

    def line(self) -> dict[str, Any]:
        """Return the only line since the last call."""
        self.kit.gateway.observer.write()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        (line,) = self.lines
        self.lines.clear()
        self.assertTrue(line.endswith(b"}\n"))
        value: dict[str, Any] = json.loads(line)
        return value

    def test_line(self) -> None:
        """A line has user, cluster, resource, status, time and bytes, and the ID that the cluster gets."""
        wire = get(PODS + b"/web/log?follow=true", b"traceparent: 00-%b-00f067aa0ba902b7-01" % TRACE)
        self.user.deliver(wire)
        sent = self.kit.pipe.taken()
        self.kit.pipe.deliver(ok(b"hello"))
        line = self.line()
        self.assertTrue(0.0 <= line.pop("duration") < 60.0, line)
        self.assertRegex(line.pop("time"), r"2026-11-22T1[12]:[0-9:.]{12}Z")
        self.assertIn(b"\r\nAudit-Id: %b\r\n" % line.pop("requestID").encode(), sent)
        self.assertIn(b"traceparent: 00-%b-00f067aa0ba902b7-01\r\n" % TRACE, sent)
        self.assertEqual(
            line,
            {
                "address": "192.0.2.7",
                "user": "jane",
                "cluster": "alpha",
                "target": "kubernetes",
                "method": "GET",
                "path": "/clusters/alpha/api/v1/namespaces/default/pods/web/log",
                "verb": "get",
                "resource": "pods",
                "subresource": "log",
                "namespace": "default",
                "name": "web",
                "kind": "logs",
                "code": 200,
                "source": "member",
                "bytesUp": len(wire),
                "bytesDown": len(self.user.taken()),
                "traceID": TRACE.decode(),
            },
        )

    def test_long_path(self) -> None:
        """A long path is truncated."""
        self.user.deliver(get(PODS + b"/" + b"x" * 5000))
        self.kit.pipe.deliver(ok())
        path = self.line()["path"]
        self.assertEqual(len(path), LONGEST_PATH)
        self.assertTrue(path.startswith(PODS.decode()))

    def test_large_batch(self) -> None:
        """A large batch is queued line by line, a small one as a whole."""
        for size, number, puts in ((10, 3, [3]), (LONGEST_PATH, 300, [1] * 300)):
            for _ in range(number):
                self.user.deliver(get(PODS + b"/" + b"x" * size))
                self.kit.pipe.deliver(ok())
            self.kit.gateway.observer.write()
            self.assertEqual(self.puts, puts)
            self.puts.clear()

    def test_client_id(self) -> None:
        """A valid ID of the client is used, and not sent twice; an invalid one is replaced."""
        for given, used in ((b"my-own-7", True), (b'x"y', False)):
            self.user.deliver(get(PODS, b"Audit-Id: " + given))
            sent = self.kit.pipe.taken()
            self.kit.pipe.deliver(ok())
            self.assertEqual(self.line()["requestID"] == given.decode(), used)
            self.assertEqual(sent.count(b"Audit-Id: "), 1 if used else 2)

    def test_traces(self) -> None:
        """Only a valid trace ID is logged; all are passed on."""
        parent = b"-00f067aa0ba902b7-01"
        for value, logged in (
            (b"00-" + TRACE + parent, True),
            (b"cc-" + TRACE + parent + b"-more", True),
            (b"ff-" + TRACE + parent, False),
            (b"00-" + b"0" * 32 + parent, False),
            (b"00-" + TRACE.upper() + parent, False),
            (b'00-"evil"', False),
        ):
            self.user.deliver(get(PODS, b"traceparent: " + value))
            self.assertIn(b"traceparent: " + value, self.kit.pipe.taken())
            self.kit.pipe.deliver(ok())
            self.assertEqual("traceID" in self.line(), logged, value)

    def test_rejected(self) -> None:
        """Tower is the source of its own answers, and the ID is that of the answer."""
        self.outcome = ValueError("defect")
        self.user.deliver(get(PODS + b"/%22%1b", b"A: b"))
        line = self.line()
        self.assertEqual((line["code"], line["source"], line["kind"]), (500, "tower", "short"))
        self.assertIn(line["requestID"].encode(), self.user.taken())
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_own_api(self) -> None:
        """Tower's own answers have an ID too."""
        self.outcome = Response(200)
        self.user.deliver(get(b"/apis/cluster.kubesphere.io/v1alpha1/clusters?limit=1"))
        line = self.line()
        self.assertEqual((line["verb"], line["apiGroup"]), ("list", "cluster.kubesphere.io"))
        self.assertNotIn("target", line)
        self.assertIn(b"\r\nX-Request-Id: %b\r\n" % line["requestID"].encode(), self.user.taken())

    def test_stream(self) -> None:
        """A raw stream is logged at its end, an exec without its command."""
        self.outcome = RawStream("alpha", "database")
        self.user.deliver(get(b"/", b"Connection: Upgrade", b"Upgrade: tower-stream"))
        self.kit.pipe.deliver(b"x" * 1000)
        self.clock.advance(1)
        self.assertEqual(self.lines, [])
        self.user.lose()
        line = self.line()
        self.assertEqual((line["code"], line["kind"], line["target"]), (101, "raw", "database"))
        self.assertGreater(line["bytesDown"], 1000)
        self.outcome = Relay("alpha", b"/clusters/alpha")
        user = self.kit.connect()
        fields = (b"Connection: Upgrade", b"Upgrade: SPDY/3.1")
        user.deliver(get(PODS + b"/web/exec?command=secret", *fields))
        user.lose()
        line = self.line()
        self.assertEqual((line["code"], line["kind"]), (0, "exec"))
        self.assertNotIn("secret", str(line))

    def test_anonymous(self) -> None:
        """The user of a port without authentication has Kubernetes' name."""
        self.user_of_request = ANONYMOUS
        self.outcome = Relay("alpha", b"/clusters/alpha", "web", plain=True)
        self.user.deliver(get(PODS))
        self.kit.pipe.deliver(ok())
        self.assertEqual(self.line()["user"], "system:anonymous")

    def test_unauthenticated(self) -> None:
        """Lines of unauthenticated requests are limited, and the others are counted."""
        self.outcome = Unauthorized("no token")
        for _ in range(UNAUTHENTICATED + 3):
            self.kit.connect().deliver(get(PODS))
        self.clock.advance(DELAY)
        self.assertEqual(len(self.lines), UNAUTHENTICATED + 1)
        self.assertNotIn(b'"user"', self.lines[0])
        self.assertEqual(json.loads(self.lines[-1])["omitted"], 3)
        self.lines.clear()
        self.clock.advance(1)
        self.kit.connect().deliver(get(PODS))
        self.assertEqual(self.line()["code"], 401)

    def test_batches(self) -> None:
        """Lines are written after a short time, or when there are many."""
        for _ in range(MANY):
            self.user.deliver(get(PODS))
            self.kit.pipe.deliver(ok())
        self.assertEqual(len(self.lines), MANY)
        self.user.deliver(get(PODS))
        self.kit.pipe.deliver(ok())
        self.clock.advance(DELAY)
        self.assertEqual(len(self.lines), MANY + 1)

    def test_no_log(self) -> None:
        """Without a log, the cluster does not get an ID."""
        self.kit.gateway.observer = None
        self.user.deliver(get(PODS))
        self.assertIn(IDENTITY, self.kit.pipe.sent)
        self.assertNotIn(b"Audit-Id", self.kit.pipe.taken())
