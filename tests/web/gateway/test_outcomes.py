"""Tests of `tower.web.gateway.outcomes`; `test_local_answers` and `test_raw_streams` have most of them."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get
from tower.net.pipes import Pipe
from tower.web.outcome import HandOver, Outcome


class HandOverTests(SynchronousTestCase):
    """Handing a connection over."""

    def test_all_bytes(self) -> None:
        """The new owner gets the connection, paused, and all bytes received."""
        taken: list[Any] = []

        def take(pipe: Pipe, received: bytes) -> None:
            taken.append((pipe, received))

        kit = Kit(lambda request: HandOver(take))
        wire = get(b"/agent", b"Connection: Upgrade", b"Upgrade: websocket")
        kit.user.deliver(wire[:20])
        kit.user.deliver(wire[20:] + b"\x81\x00more")
        self.assertEqual(taken, [(kit.user, wire + b"\x81\x00more")])
        self.assertTrue(kit.user.paused)
        self.assertEqual(kit.gateway.connections, 0)

    def test_later(self) -> None:
        """A Deferred may fire with a hand-over; bytes received meanwhile are not lost."""
        taken: list[bytes] = []
        verdict: Deferred[Outcome] = Deferred()
        kit = Kit(lambda request: verdict)
        kit.user.deliver(get(b"/agent"))
        kit.user.deliver(b"more")
        verdict.callback(HandOver(lambda pipe, received: taken.append(received)))
        self.assertEqual(taken, [get(b"/agent") + b"more"])

    def test_taker_fails(self) -> None:
        """If the new owner fails, the connection is closed."""
        kit = Kit(lambda request: HandOver(lambda pipe, received: 1 // 0))  # type: ignore[arg-type]
        kit.user.deliver(get(b"/agent"))
        self.assertTrue(kit.user.aborted)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_body_refused(self) -> None:
        """A request with a body is not handed over."""
        kit = Kit(lambda request: HandOver(lambda pipe, received: None))
        kit.user.deliver(get(b"/agent", b"Content-Length: 1", body=b"a"))
        self.assertIn(b" 400 ", kit.user.taken())
