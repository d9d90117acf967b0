"""Tests of `tower.conch.tunnel.framing`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.tunnel.framing import UNFRAMED
from tower.websocket.frames import CLOSE


class UnframedTests(SynchronousTestCase):
    """Replaces frames."""

    def test_as_it_is(self) -> None:
        """Everything is payload, and there are no control frames."""
        self.assertEqual(UNFRAMED.feed(memoryview(b"bytes")), [(0, 5)])
        self.assertEqual(UNFRAMED.wrap(b"bytes"), b"bytes")
        self.assertEqual(UNFRAMED.wrap(b"bye", CLOSE), b"")
        self.assertEqual(UNFRAMED.wrap_into(memoryview(bytearray(9)), 3, 9), 3)
