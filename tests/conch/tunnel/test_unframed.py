"""Tests of `tower.conch.tunnel.unframed`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.tunnel.unframed import BARE
from tower.websocket.frames import CLOSE


class BareTests(SynchronousTestCase):
    """Stands in for frames."""

    def test_as_it_is(self) -> None:
        """Everything is payload, and there are no control frames."""
        self.assertEqual(BARE.feed(memoryview(b"bytes")), [(0, 5)])
        self.assertEqual(BARE.wrap(b"bytes"), b"bytes")
        self.assertEqual(BARE.wrap(b"bye", CLOSE), b"")
        self.assertEqual(BARE.wrap_into(memoryview(bytearray(9)), 3, 9), 3)
