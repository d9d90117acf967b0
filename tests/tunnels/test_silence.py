"""Tests for `tower.tunnels.silence`."""

from __future__ import annotations

import gc
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.tunnels.silence import Silences


class SilenceTests(SynchronousTestCase):
    """Agents that are connected and do not answer."""

    def setUp(self) -> None:
        """Start with one tunnel."""
        self.clock = Clock()
        self.silences = Silences(self.clock.seconds)
        self.tunnel: Any = FakeTunnel()

    def look(self, times: int, distance: float = 1.0) -> bool:
        """Look several times; return the last result."""
        result = False
        for _ in range(times):
            self.clock.advance(distance)
            result = self.silences.look(self.tunnel)
        return result

    def test_silent(self) -> None:
        """A tunnel without any byte in 4 s after a probe is silent, and known to be."""
        self.assertFalse(self.look(4))
        self.assertFalse(self.silences.knows(self.tunnel))
        self.assertTrue(self.look(1))
        self.assertEqual(self.tunnel.nudges, 1)
        self.assertTrue(self.silences.any)
        self.assertTrue(self.silences.knows(self.tunnel))

    def test_slow(self) -> None:
        """A tunnel that answers probes is never silent, and gets a new probe after each answer."""
        for _ in range(10):
            self.assertFalse(self.look(4))
            self.tunnel.bytes_in += 100
        self.assertEqual(self.tunnel.nudges, 10)

    def test_alive_again(self) -> None:
        """The first byte ends the silence, also without another look."""
        self.look(5)
        self.tunnel.bytes_in += 1
        self.assertFalse(self.silences.knows(self.tunnel))
        self.look(5)
        self.tunnel.bytes_in += 1
        self.silences.sweep()
        self.assertFalse(self.silences.any)

    def test_stopped_proxy(self) -> None:
        """Time in which this process itself stood still does not count: the answers may wait to be read."""
        self.look(1)
        self.assertFalse(self.look(1, 60.0))
        self.assertFalse(self.look(2, 0.1))
        self.assertFalse(self.look(2))
        self.assertTrue(self.look(1))

    def test_many_requests(self) -> None:
        """Many requests in the same second count as one."""
        self.assertFalse(self.look(100, 0.01))

    def test_not_counted(self) -> None:
        """A tunnel that does not count its bytes is never silent."""
        self.tunnel.bytes_in = None
        self.assertFalse(self.look(100))
        self.assertEqual(self.tunnel.nudges, 0)

    def test_closed(self) -> None:
        """A closed tunnel is not kept in memory."""
        self.look(5)
        self.tunnel = None
        gc.collect()
        self.silences.sweep()
        self.assertFalse(self.silences.any)
