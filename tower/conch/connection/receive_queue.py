"""Received bytes that are not delivered yet."""

from __future__ import annotations

from collections import deque
from typing import Final

#: Smaller pieces are joined up to this size, B: many small ones must not cost many objects.
_PIECE: Final = 16 * 1024


class ReceiveQueue:
    """Received data of a paused channel, in order; see `tower.net.send_queue.SendQueue`.

    :ivar since: when the first data arrived, monotonic, s.
    :ivar size: of all data, B.
    """

    __slots__ = ("_pieces", "since", "size")

    def __init__(self, since: float) -> None:
        self._pieces: deque[bytearray] = deque()
        self.since = since
        self.size = 0

    def keep(self, data: memoryview) -> None:
        """Keep a copy of *data*, which is not empty."""
        pieces = self._pieces
        if pieces and len(pieces[-1]) + len(data) <= _PIECE:
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))
        self.size += len(data)

    def take(self) -> memoryview:
        """Remove and return the first piece."""
        piece = self._pieces.popleft()
        self.size -= len(piece)
        return memoryview(piece)
