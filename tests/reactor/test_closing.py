"""Tests of `tower.reactor.closing`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.reactor.closing import Closing


class ClosingTests(SynchronousTestCase):
    """The service."""

    def test_end(self) -> None:
        """It closes at the end, and not before."""
        closed: list[None] = []
        service = Closing(lambda: closed.append(None))
        service.startService()
        self.assertEqual(closed, [])
        service.stopService()
        self.assertEqual(len(closed), 1)
