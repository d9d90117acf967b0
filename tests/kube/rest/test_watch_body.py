"""Tests of `tower.kube.rest.watch_body`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone

from tower.kube.client import APIError
from tower.kube.rest import watch_body
from tower.kube.rest.host_api import WatchEvent
from tower.kube.rest.watch_body import OVERTIME, SILENCE, WatchBody, WatchParser

PATH = "/api/v1/secrets"


def line(kind: str, **fields: Any) -> bytes:
    """Return a line of a watch."""
    item = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, **fields}
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class WatchParserTests(SynchronousTestCase):
    """Bytes to events."""

    def test_pieces(self) -> None:
        """Events do not depend on how their bytes are divided."""
        data = line("ADDED", x="ü") + b"\r\n" + line("BOOKMARK") + line("DELETED")
        for size in (1, 2, 7, len(data)):
            parser = WatchParser(PATH)
            events: list[WatchEvent] = []
            for start in range(0, len(data), size):
                events += parser.feed(data[start : start + size])
            self.assertEqual([event.type for event in events], ["ADDED", "BOOKMARK", "DELETED"])
            self.assertEqual(events[0].object["x"], "ü")

    def test_error_event(self) -> None:
        """An error event is raised with code and reason of its Status."""
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old\x1b[31m"}
        data = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
        error = self.assertRaises(APIError, WatchParser(PATH).feed, data)
        self.assertEqual((error.code, error.reason, error.path), (410, "Expired", PATH))
        self.assertIn(r"too old\u001b[31m", str(error))

    def test_odd_errors(self) -> None:
        """A Status without useful fields is an error all the same."""
        for item in ({}, {"code": "410", "message": 7, "reason": []}):
            data = json.dumps({"type": "ERROR", "object": item}).encode() + b"\n"
            self.assertEqual(self.assertRaises(APIError, WatchParser(PATH).feed, data).code, 500)

    def test_not_events(self) -> None:
        """Everything else is an error that quotes the beginning of the line, but not a Secret's data."""
        for data in (
            b"hello",
            b"[]",
            b"[" * 100_000,
            b'{"type": "ADDED"}',
            b'{"type": "ADDED", "object": {}}',
            b'{"type": "ADDED", "object": {"metadata": []}}',
            b'{"type": "ADDED", "object": {"metadata": {"name": "a", "uid": "u", "resourceVersion": 7}}}',
            b'{"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "7"}}}',
            b'{"type": "BOOKMARK", "object": {"metadata": {"name": "a"}}}',
            b'{"type": "OTHER", "object": {"metadata": {"resourceVersion": "7"}}}',
            b'{"type": [], "object": {"metadata": {"resourceVersion": "7"}}}',
            b"\xff\xfe",
        ):
            error = self.assertRaises(APIError, WatchParser(PATH).feed, data + b"\n")
            self.assertEqual(error.code, 0)
            self.assertIn("not a watch event", str(error))
        data = line("OTHER", data={"key": "confidential"})
        error = self.assertRaises(APIError, WatchParser(PATH).feed, data)
        self.assertIn("OTHER", str(error))
        self.assertNotIn("confidential", str(error))

    def test_too_long(self) -> None:
        """A line without end is not kept."""
        self.patch(watch_body, "LINE_LIMIT", 1000)
        parser = WatchParser(PATH)
        for _ in range(10):
            self.assertEqual(parser.feed(b"x" * 100), [])
        self.assertIn("more than 1000 B", str(self.assertRaises(APIError, parser.feed, b"x")))


class WatchBodyTests(SynchronousTestCase):
    """Ends of a watch."""

    def setUp(self) -> None:
        """Begin a watch."""
        self.clock = Clock()
        self.events: list[str] = []
        self.body = WatchBody(self.clock, PATH, lambda event: self.events.append(event.type), 300)
        self.transport = StringTransport()
        self.body.makeConnection(self.transport)

    def closed(self) -> None:
        """Check that nothing is left."""
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.body.dataReceived(line("ADDED"))
        self.body.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.events, [])

    def test_done(self) -> None:
        """The server ends it."""
        self.body.connectionLost(Failure(ResponseDone()))
        self.successResultOf(self.body.done)
        self.closed()

    def test_lost(self) -> None:
        """The connection is lost within the body."""
        self.body.connectionLost(Failure(ConnectionLost()))
        error = self.failureResultOf(self.body.done, APIError).value
        self.assertIn("no answer: Connection to the other side was lost", str(error))
        self.closed()

    def test_bad_line(self) -> None:
        """The server sends nonsense."""
        self.body.dataReceived(b"x\n")
        self.failureResultOf(self.body.done, APIError)
        self.closed()

    def test_cancel(self) -> None:
        """The caller cancels it."""
        self.body.done.cancel()
        self.failureResultOf(self.body.done, CancelledError)
        self.closed()

    def test_cancel_within(self) -> None:
        """The caller cancels it while an event is delivered: the next one is not."""
        self.body = WatchBody(self.clock, PATH, self.cancel, 300)
        self.body.makeConnection(self.transport)
        self.body.dataReceived(line("ADDED") + line("MODIFIED"))
        self.assertEqual(self.events, ["ADDED"])
        self.failureResultOf(self.body.done, CancelledError)

    def cancel(self, event: WatchEvent) -> None:
        """Record, and cancel."""
        self.events.append(event.type)
        self.body.done.cancel()

    def test_before_the_connection(self) -> None:
        """A body that is over already closes its connection."""
        body = WatchBody(self.clock, PATH, self.fail, 300)
        body.end()
        transport = StringTransport()
        body.makeConnection(transport)
        self.assertTrue(transport.disconnecting)

    def test_silence(self) -> None:
        """It ends after long silence; each event prolongs it up to the deadline."""
        self.clock.advance(SILENCE - 1)
        self.body.dataReceived(b"\n")
        self.clock.advance(SILENCE - 1)
        self.assertNoResult(self.body.done)
        self.clock.advance(1)
        self.successResultOf(self.body.done)
        self.closed()

    def test_deadline(self) -> None:
        """It ends a while after the requested time, although the server sends events."""
        for _ in range(4):
            self.clock.advance((300 + OVERTIME) / 4 - 0.1)
            self.body.dataReceived(b"\n")
        self.assertNoResult(self.body.done)
        self.clock.advance(1)
        self.successResultOf(self.body.done)
        self.closed()
