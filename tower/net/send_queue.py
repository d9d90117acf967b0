"""Bytes that were to be sent and could not go yet."""

from __future__ import annotations

from collections import deque

from tower.net.pipes import Buffer


class SendQueue:
    """What waits to be sent, in order; each piece is a copy of what somebody wanted sent.

    Made when something has to wait and dropped when nothing does any more: most never have to.

    :ivar size: all of it, B.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size = 0

    def add(self, data: Buffer) -> None:
        """Keep a copy of *data*, which is not empty."""
        self._pieces.append(memoryview(bytes(data)))
        self.size += len(data)

    def first(self) -> memoryview:
        """Return what is next: at least a byte, if there is any."""
        return self._pieces[0]

    def advance(self, count: int) -> None:
        """Forget the first *count* bytes of `first`."""
        self.size -= count
        first = self._pieces[0]
        if count == len(first):
            self._pieces.popleft()
        else:
            self._pieces[0] = first[count:]
