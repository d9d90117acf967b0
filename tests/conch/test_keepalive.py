"""Tests of tower.conch.keepalive."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.conch.test_requests import Sent
from tower.conch.keepalive import Keepalive
from tower.conch.requests import ConnectionService


class KeepaliveTests(SynchronousTestCase):
    """Keepalive."""

    def setUp(self) -> None:
        """Probe every 10 s."""
        self.clock = Clock()
        self.service = ConnectionService(self.clock)
        self.sent = Sent()
        transport: Any = self.sent
        self.service.transport = transport
        self.service.serviceStarted()
        self.received = 0
        self.deaths: list[float] = []
        self.keepalive = Keepalive(
            self.clock,
            self.service,
            10.0,
            lambda: self.received,
            lambda: self.deaths.append(self.clock.seconds()),
        )

    def answer(self, kind: int = 81) -> None:
        """Have the peer answer one probe."""
        self.received += 1
        self.service.packetReceived(kind, b"")

    def test_round_trip(self) -> None:
        """The time to the answer is measured, of a refusal as well; the quickest of the last six counts."""
        self.keepalive.start()
        self.assertIsNone(self.keepalive.round_trip)
        self.clock.advance(0.25)
        self.answer()
        self.assertEqual(self.keepalive.round_trip, 0.25)
        self.clock.advance(9.75)
        self.clock.advance(0.5)
        self.answer(82)
        self.assertEqual(self.keepalive.round_trip, 0.25)
        for _ in range(5):
            self.clock.advance(9.5)
            self.clock.advance(0.5)
            self.answer()
        self.assertEqual(self.keepalive.round_trip, 0.5)

    def test_silence(self) -> None:
        """A silent peer is given up within three periods of its last sign, whenever that was."""
        for eighths in range(0, 80, 7):
            self.setUp()
            self.keepalive.start()
            self.clock.pump([0.125] * eighths)
            self.answer()
            last = self.clock.seconds()
            self.clock.pump([0.125] * 320)
            self.assertEqual(len(self.deaths), 1)
            self.assertGreaterEqual(self.deaths[0] - last, 20)
            self.assertLessEqual(self.deaths[0] - last, 30)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_busy_peer(self) -> None:
        """A peer that sends, but never answers, is alive; it is not asked again before it has."""
        self.keepalive.start()
        for _ in range(20):
            self.received += 1
            self.clock.advance(10)
        self.assertEqual(self.deaths, [])
        self.assertEqual(len(self.sent.packets), 1)
        self.answer()
        self.clock.advance(10)
        self.assertEqual(len(self.sent.packets), 2)

    def test_answering_peer(self) -> None:
        """A peer that answers lives for ever."""
        self.keepalive.start()
        for _ in range(50):
            self.answer()
            self.clock.advance(10)
        self.assertEqual(self.deaths, [])

    def test_stop(self) -> None:
        """Stopped, it leaves nothing behind, twice if need be; the end of the service does not disturb it."""
        self.keepalive.start()
        self.service.serviceStopped()
        self.keepalive.stop()
        self.keepalive.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_never(self) -> None:
        """An interval of 0 means no probes."""
        never = Keepalive(self.clock, self.service, 0, lambda: 0, lambda: None)
        never.start()
        self.assertEqual((self.sent.packets, self.clock.getDelayedCalls()), ([], []))
