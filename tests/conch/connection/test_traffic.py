"""Tests of `tower.conch.connection.traffic`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.muxes import MuxPair
from tests.fakes.receivers import Recorder
from tower.errors import TunnelLost


class TrafficTests(SynchronousTestCase):
    """Bytes and stalls of the streams of a tunnel."""

    def setUp(self) -> None:
        """Open a stream."""
        self.pair = MuxPair()
        self.near, self.far = self.pair.open(Recorder(), Recorder())
        self.traffic, self.peer = self.pair.near.traffic, self.pair.far.traffic

    def test_open(self) -> None:
        """The bytes of an open stream count at once, in both directions."""
        self.near.send(b"question")
        self.pair.pump()
        self.far.send(b"a long answer")
        self.pair.pump()
        self.assertEqual(self.traffic.totals(), (13, 8, 0.0, 1))
        self.assertEqual(self.peer.totals(), (8, 13, 0.0, 1))

    def test_labels(self) -> None:
        """Open streams are counted by their label."""
        other, _ = self.pair.open(Recorder(), Recorder())
        self.near.label = other.label = "kubernetes"
        self.pair.open(Recorder(), Recorder())
        self.assertEqual(self.traffic.labels(), {"kubernetes": 2, "": 1})
        other.abort()
        self.pair.pump()
        self.assertEqual(self.traffic.labels(), {"kubernetes": 1, "": 1})

    def test_closed(self) -> None:
        """The bytes of a closed stream stay."""
        self.near.send(b"question")
        self.near.close()
        self.pair.pump()
        self.assertEqual(self.traffic.totals(), (0, 8, 0.0, 0))
        self.assertEqual(self.peer.totals(), (8, 0, 0.0, 0))

    def test_lost(self) -> None:
        """The bytes of a lost tunnel's streams stay, and are counted once."""
        self.near.send(b"question")
        self.pair.near.mux.lost(TunnelLost("gone"))
        self.assertEqual(self.traffic.totals(), (0, 8, 0.0, 0))
        self.near.abort()
        self.assertEqual(self.traffic.totals(), (0, 8, 0.0, 0))

    def test_receiver_paused(self) -> None:
        """Data that waits for a paused receiver is a stall, during it and after its end."""
        self.far.pause()
        self.pair.clock.advance(5)
        self.assertEqual(self.peer.totals().stalled, 0)  # no data waits
        self.near.send(b"question")
        self.pair.pump()
        self.pair.clock.advance(3)
        self.assertEqual(self.peer.totals().stalled, 3)
        self.far.resume()
        self.pair.clock.advance(60)
        self.assertEqual(self.peer.totals().stalled, 3)

    def test_window_exhausted(self) -> None:
        """A sender without window is a stall until the receiver reads again."""
        self.far.pause()
        while self.near.send(bytes(16 * 1024)):
            self.pair.pump()
        self.pair.clock.advance(7)
        self.assertEqual(self.traffic.totals().stalled, 7)
        self.far.resume()
        self.pair.pump()
        self.pair.clock.advance(60)
        self.assertEqual(self.traffic.totals().stalled, 7)

    def test_closed_during_a_stall(self) -> None:
        """A stall stays when the stream is closed with waiting data: totals never decrease."""
        for end in ("close", "abort"):
            near, far = self.pair.open(Recorder(), Recorder())
            far.pause()
            near.send(b"question")
            self.pair.pump()
            self.pair.clock.advance(3)
            before = self.peer.totals().stalled
            getattr(far, end)()
            self.assertEqual(self.peer.totals().stalled, before, end)
            self.pair.pump()
            self.pair.clock.advance(60)
            self.assertEqual(self.peer.totals().stalled, before, end)
