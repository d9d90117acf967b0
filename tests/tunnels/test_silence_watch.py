"""Tests for `tower.tunnels.silence_watch`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.tunnels import Tunnels
from tower.tunnels.silence import Silences
from tower.tunnels.silence_watch import PERIOD, SilenceWatch

KEEPALIVE = 10  # s


class SilenceWatchTests(SynchronousTestCase):
    """Agents that stop to answer while no request waits for them."""

    def setUp(self) -> None:
        """Start with one tunnel."""
        self.clock = Clock()
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        self.silences = Silences(self.clock.seconds)
        self.watch = SilenceWatch(self.tunnels, self.silences, self.clock.seconds)
        self.tunnel = FakeTunnel()
        self.tunnels.add(self.tunnel)

    def check(self, seconds: int) -> bool:
        """Check for some time; return whether the tunnel is silent."""
        for _ in range(int(seconds / PERIOD)):
            self.clock.advance(PERIOD)
            self.watch.check()
        return self.tunnels.is_silent(self.tunnel)

    def answer(self) -> None:
        """Receive some bytes."""
        assert self.tunnel.bytes_in is not None
        self.tunnel.bytes_in += 100

    def test_frozen(self) -> None:
        """An agent is silent 16 s after its last byte at most; the next byte ends this within 1 s."""
        self.assertFalse(self.check(13))
        self.assertTrue(self.check(4))
        self.assertEqual(self.tunnels.last_seen("alpha"), PERIOD)
        self.assertEqual(self.tunnel.nudges, 1)
        self.assertTrue(self.check(60))
        self.answer()
        self.assertFalse(self.check(1))
        self.assertEqual(self.tunnels.last_seen("alpha"), self.clock.seconds())

    def test_idle(self) -> None:
        """An agent that only answers keepalives is not silent, and does not cause further probes."""
        for _ in range(10):
            self.assertFalse(self.check(KEEPALIVE))
            self.answer()
        self.assertEqual(self.tunnel.nudges, 0)

    def test_slow(self) -> None:
        """An agent whose answers take 13 s is not silent."""
        for _ in range(10):
            self.assertFalse(self.check(13))
            self.answer()

    def test_request(self) -> None:
        """A silence that a request has found counts only once it lasts."""
        self.check(1)
        for _ in range(7):
            self.clock.advance(1)
            self.silences.look(self.tunnel)
        self.assertTrue(self.silences.knows(self.tunnel))
        self.assertFalse(self.check(3))
        self.assertTrue(self.check(1))

    def test_stopped_proxy(self) -> None:
        """Time in which this process itself stood still does not count."""
        self.check(1)
        self.clock.advance(60)
        self.assertFalse(self.check(3))
        self.answer()
        self.assertFalse(self.check(10))

    def test_not_counted(self) -> None:
        """A tunnel that does not count its bytes is never silent."""
        self.tunnel.bytes_in = None
        self.assertFalse(self.check(100))
