"""Tests for `tower.web.gateway.raw_streams`: raw streams to a target of a cluster."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get
from tests.fakes.observers import FakeObserver
from tower.errors import StreamRefused
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, RawStream

ASKED = get(b"/clusters/alpha/targets/database", b"Connection: Upgrade", b"Upgrade: tower-stream")


class StreamTests(SynchronousTestCase):
    """``Upgrade: tower-stream``."""

    def setUp(self) -> None:
        """Route to a target."""
        self.kit = Kit(self.route)
        self.user = self.kit.user

    def route(self, request: Request) -> Outcome:
        """Open a stream as jane."""
        request.identity = self.kit.jane
        return RawStream("alpha", "database")

    def test_opened(self) -> None:
        """After the 101 bytes pass both ways; bytes that arrived before go first."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED + b"early")
        self.user.deliver(b"bird")
        self.assertEqual(self.user.taken(), b"")
        pipe = self.kit.tunnel.confirm()
        self.assertEqual(
            self.user.taken(),
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tower-stream\r\n\r\n",
        )
        self.assertEqual(pipe.taken(), b"earlybird")
        pipe.deliver(b"there")
        self.assertEqual(self.user.taken(), b"there")
        self.user.end()
        self.assertTrue(pipe.finished)
        self.assertEqual(self.kit.tunnel.targets, ["database"])

    def test_full_from_the_start(self) -> None:
        """Early bytes that fill the channel pause the user."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED + b"early")
        self.user.full = True
        pipe = self.kit.tunnel.confirm()
        self.assertTrue(pipe.paused)
        self.user.drain()
        self.assertFalse(pipe.paused)

    def test_early_bytes_are_bounded(self) -> None:
        """The user is paused if too many bytes arrive before the stream is open."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED)
        self.user.deliver(b"x" * 70_000)
        self.assertTrue(self.user.paused)
        self.kit.tunnel.confirm()
        self.assertFalse(self.user.paused)

    def test_refused(self) -> None:
        """A rejection is a Status; the connection is kept."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED)
        self.kit.tunnel.openings[0].errback(StreamRefused("no-such-target", "there is no database"))
        self.assertIn(b" 404 ", self.user.taken())
        self.assertFalse(self.user.closing)
        self.user.deliver(ASKED)
        self.assertEqual(len(self.kit.tunnel.openings), 2)

    def test_silent_agent(self) -> None:
        """A silent agent fails the stream within 5 s."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED)
        for _ in range(5):
            self.kit.clock.advance(1)
            self.kit.sweep(1)
        self.assertIn(b" 503 ", self.user.taken())

    def test_no_upgrade(self) -> None:
        """A request without the upgrade gets the missing fields; one with a body is rejected."""
        for wire, status in (
            (get(), b" 426 "),
            (get(b"/", b"Connection: upgrade", b"Upgrade: websocket"), b" 426 "),
            (
                get(b"/", b"Connection: upgrade", b"Upgrade: tower-stream", b"Content-Length: 1", body=b"a"),
                b" 400 ",
            ),
        ):
            kit = Kit(self.route)
            kit.user.deliver(wire)
            self.assertIn(status, kit.user.taken())

    def test_nobody(self) -> None:
        """A stream without an identity is not opened."""
        kit = Kit(lambda request: RawStream("alpha", "database"))
        kit.user.deliver(ASKED)
        self.assertIn(b" 401 ", kit.user.taken())
        self.assertEqual(kit.tunnel.openings, [])

    def test_gone(self) -> None:
        """A disconnect while the stream opens leaves nothing behind; a later one ends the stream."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED)
        self.user.lose()
        self.assertTrue(self.kit.tunnel.confirm().aborted)
        kit = Kit(self.route)
        kit.user.deliver(ASKED)
        self.assertEqual(len(kit.sessions.inside), 1)
        kit.user.lose()
        self.assertTrue(kit.pipe.aborted)
        self.assertEqual(kit.sessions.inside, [])

    def test_no_answer(self) -> None:
        """A tunnel that does not answer in time is a failure."""
        self.kit.tunnel.at_once = False
        self.user.deliver(ASKED)
        self.kit.sweep(121)
        self.assertIn(b" 504 ", self.user.taken())
        self.assertTrue(self.kit.tunnel.confirm().aborted)

    def test_stop(self) -> None:
        """Stopping the gateway cuts raw streams after the grace, and the log gets the cause."""
        self.kit.gateway.observer = observer = FakeObserver()
        self.user.deliver(ASKED)
        stopped = self.kit.gateway.stop(1.0)
        self.assertFalse(self.user.closing)
        self.kit.clock.advance(1.0)
        self.assertTrue(self.user.aborted)
        self.successResultOf(stopped)
        self.assertEqual(self.kit.gateway.cut, 1)
        self.assertEqual([(each["code"], each["aborted"]) for each in observer.over], [(101, "tower")])
