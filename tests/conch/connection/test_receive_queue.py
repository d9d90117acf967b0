"""Tests of `tower.conch.connection.receive_queue`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.connection.receive_queue import ReceiveQueue


class ReceiveQueueTests(SynchronousTestCase):
    """Inbox."""

    def taken(self, inbox: ReceiveQueue) -> list[bytes]:
        """Take all pieces."""
        pieces: list[bytes] = []
        while inbox.size:
            pieces.append(bytes(inbox.take()))
        return pieces

    def test_small(self) -> None:
        """Many small pieces become few, and nothing of them is lost."""
        inbox, whole = ReceiveQueue(0.0), bytes(range(250)) * 400
        for begin in range(0, len(whole), 7):
            inbox.keep(memoryview(whole)[begin : begin + 7])
        self.assertEqual(inbox.size, len(whole))
        pieces = self.taken(inbox)
        self.assertLess(len(pieces), 10)
        self.assertEqual(b"".join(pieces), whole)

    def test_large(self) -> None:
        """Large ones stay what they are, and small ones behind them do not make them longer."""
        inbox = ReceiveQueue(0.0)
        for size in (100_000, 5, 6, 100_000):
            inbox.keep(memoryview(bytes(size)))
        self.assertEqual(list(map(len, self.taken(inbox))), [100_000, 11, 100_000])

    def test_copies(self) -> None:
        """The queue keeps copies, and a taken piece may be kept."""
        inbox, data = ReceiveQueue(0.0), bytearray(b"bytes")
        inbox.keep(memoryview(data))
        data[:] = b"other"
        piece = inbox.take()
        inbox.keep(memoryview(b"more"))
        self.assertEqual((piece, inbox.take()), (b"bytes", b"more"))
