"""Tests of `tower.net.send_queue`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.net.send_queue import SendQueue


class BacklogTests(SynchronousTestCase):
    """`SendQueue`."""

    @given(
        st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=8),
        st.lists(st.integers(0, 20), max_size=20),
    )
    def test_in_order(self, pieces: list[bytes], counts: list[int]) -> None:
        """Bytes leave in order, in any pieces; the size is always known."""
        backlog = SendQueue()
        for piece in pieces:
            backlog.add(piece)
        got, whole = b"", b"".join(pieces)
        counts += [20] * len(pieces)
        while backlog.size:
            first = backlog.first()
            count = min(counts.pop(0), len(first))
            got += first[:count]
            backlog.advance(count)
            self.assertEqual(backlog.size, len(whole) - len(got))
        self.assertEqual(got, whole)

    def test_copies(self) -> None:
        """Queued bytes are copies."""
        backlog, data = SendQueue(), bytearray(b"bytes")
        backlog.add(memoryview(data))
        data[:] = b"other"
        self.assertEqual(backlog.first(), b"bytes")
