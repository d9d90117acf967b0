"""Tests of tower.conch.connection.keepalive."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.ssh_pairs import Sent
from tower.conch.connection.global_requests import ConnectionService
from tower.conch.connection.keepalive import Keepalive
from tower.conch.connection.liveness import LivenessTransport


class KeepaliveTests(SynchronousTestCase):
    """Keepalive."""

    def setUp(self) -> None:
        """Probe every 10 s."""
        self.clock = Clock()
        self.service = ConnectionService(self.clock, {})
        self.sent = Sent()
        transport: Any = self.sent
        self.service.transport = transport
        self.service.serviceStarted()
        self.came = self.counted = self.rests = 0
        self.deaths: list[float] = []
        self.keepalive = self.keep(10.0)

    def keep(self, interval: float) -> Keepalive:
        """Return one that probes each *interval*."""
        return Keepalive(self.clock, self.service, interval, cast(LivenessTransport, self))

    def received(self) -> object:
        """See `LivenessTransport.received`."""
        return self.came

    def bytes_moved(self) -> int:
        """See `LivenessTransport.bytes_moved`."""
        return self.counted

    def release_ciphers(self) -> None:
        """See `LivenessTransport.release_ciphers`."""
        self.rests += 1

    def give_up(self) -> None:
        """See `LivenessTransport.give_up`."""
        self.deaths.append(self.clock.seconds())

    def answer(self, kind: int = 81) -> None:
        """Let the peer answer one probe."""
        self.came += 1
        self.service.packetReceived(kind, b"")

    def test_round_trip(self) -> None:
        """The time to the answer is measured, of a refusal as well; the quickest of the last six counts."""
        self.assertIsNone(self.keepalive.round_trip)
        self.keepalive.start(0.25)
        self.assertEqual(self.keepalive.round_trip, 0.25)
        self.clock.advance(2.0)
        self.clock.advance(0.5)
        self.answer(82)
        self.assertEqual(self.keepalive.round_trip, 0.25)
        self.clock.advance(7.5)
        for _ in range(5):
            self.clock.advance(0.5)
            self.answer()
            self.clock.advance(9.5)
        self.assertEqual(self.keepalive.round_trip, 0.5)

    def test_early(self) -> None:
        """The first probe comes soon, since a tunnel that is just being opened is slow to answer."""
        self.keepalive.start(0.25)
        self.assertEqual(len(self.sent.packets), 0)
        self.clock.advance(2.0)
        self.assertEqual(len(self.sent.packets), 1)
        self.clock.advance(0.125)
        self.answer()
        self.assertEqual(self.keepalive.round_trip, 0.125)

    def test_rest(self) -> None:
        """The peer may rest from the beginning, and after each answer."""
        self.keepalive.start(0.25)
        self.assertEqual(self.rests, 1)
        self.clock.advance(2.0)
        self.assertEqual(self.rests, 1)
        self.answer()
        self.assertEqual(self.rests, 2)

    def measure(self, took: float, moved: int) -> float | None:
        """Let the next probe be answered after *took* s, with *moved* bytes of other traffic."""
        self.clock.advance(10.0 - self.clock.seconds() % 10.0)
        self.counted += moved
        self.clock.advance(took)
        self.answer()
        return self.keepalive.round_trip

    def begin(self) -> None:
        """Start, and have the first probe answered."""
        self.keepalive.start(0.25)
        self.clock.advance(2)
        self.clock.advance(0.25)
        self.answer()

    def test_busy_way(self) -> None:
        """A probe that waited behind bulk data never makes the round trip longer, only shorter."""
        self.begin()
        for _ in range(50):
            self.assertEqual(self.measure(2.0, 1 << 20), 0.25)
        self.assertEqual(self.measure(0.125, 1 << 20), 0.125)
        for _ in range(50):
            self.assertEqual(self.measure(2.0, 1 << 20), 0.125)
        for _ in range(5):
            self.assertEqual(self.measure(1.0, 1000), 0.125)
        self.assertEqual(self.measure(1.0, 1000), 1.0)

    def test_new_count(self) -> None:
        """After a restart of the byte count it is unknown whether the path was free."""
        self.counted = 5000
        self.begin()
        for _ in range(10):
            self.assertEqual(self.measure(2.0, -100), 0.25)

    def test_silence(self) -> None:
        """A silent peer is given up within three periods of its last sign, whenever that was."""
        for eighths in range(0, 80, 7):
            self.setUp()
            self.keepalive.start(0.25)
            self.clock.pump([0.125] * eighths)
            self.came += 1
            last = self.clock.seconds()
            self.clock.pump([0.125] * 320)
            self.assertEqual(len(self.deaths), 1)
            self.assertGreaterEqual(self.deaths[0] - last, 20)
            self.assertLessEqual(self.deaths[0] - last, 30)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_busy_peer(self) -> None:
        """A peer that sends, but never answers, is alive; it is not asked again before it has."""
        self.keepalive.start(0.25)
        for _ in range(20):
            self.came += 1
            self.clock.advance(10)
        self.assertEqual(self.deaths, [])
        self.assertEqual(len(self.sent.packets), 1)
        self.answer()
        self.clock.advance(10)
        self.assertEqual(len(self.sent.packets), 2)

    def test_answering_peer(self) -> None:
        """A peer that answers lives for ever."""
        self.keepalive.start(0.25)
        for _ in range(50):
            self.clock.advance(10)
            self.answer()
        self.assertEqual(self.deaths, [])

    def test_we_were_slow(self) -> None:
        """A sign that came while this process stood still counts, though the timers are called before it."""
        self.keepalive.start(0.25)

        def read() -> None:
            self.came += 1

        for _ in range(20):
            self.clock.advance(10)
            self.clock.callLater(15, read)  # data that the reactor reads when it continues
            self.clock.advance(15)
        self.assertEqual(self.deaths, [])

    def test_stop(self) -> None:
        """Stopped, it leaves nothing behind, twice if need be; the end of the service does not disturb it."""
        self.keepalive.start(0.25)
        self.service.serviceStopped()
        self.keepalive.stop()
        self.keepalive.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_never(self) -> None:
        """An interval of 0 means to measure the round trip once more and nothing after that."""
        never = self.keep(0)
        never.start(0.25)
        self.clock.advance(2.0)
        self.answer()
        self.assertEqual(never.round_trip, 0.0)
        self.clock.pump([1.0] * 100)
        self.assertEqual(len(self.sent.packets), 1)
        self.assertEqual((self.deaths, self.clock.getDelayedCalls()), ([], []))
