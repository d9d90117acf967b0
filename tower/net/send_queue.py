"""Queue of bytes to send."""

from __future__ import annotations

from collections import deque

from tower.net.pipes import Buffer


class SendQueue:
    """Bytes that wait to be sent, in order, as copies; `size` is their number.

    Created when bytes must wait and dropped when empty: most connections never have one.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size = 0

    def add(self, data: Buffer) -> None:
        """Append a copy of *data*, which is not empty."""
        self._pieces.append(memoryview(bytes(data)))
        self.size += len(data)

    def first(self) -> memoryview:
        """Return the next piece, at least one byte; the queue is not empty."""
        return self._pieces[0]

    def advance(self, count: int) -> None:
        """Remove the first *count* bytes of `first`."""
        self.size -= count
        first = self._pieces[0]
        if count == len(first):
            self._pieces.popleft()
        else:
            self._pieces[0] = first[count:]
