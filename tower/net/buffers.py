"""Buffers of the process for tunnels, each lent to one tunnel at a time."""

from __future__ import annotations

from typing import Final

#: Size of a receive buffer: two of the longest packets, B.
BUFFER_SIZE: Final = 576 * 1024

#: Free buffers that are kept.
_SPARE_BUFFERS: Final = 4


class BufferPool:
    """Receive buffers, each lent to one tunnel at a time."""

    def __init__(self) -> None:
        self._spare: list[memoryview] = []

    def take(self) -> memoryview:
        """Return a buffer of `BUFFER_SIZE`."""
        return self._spare.pop() if self._spare else memoryview(bytearray(BUFFER_SIZE))

    def give_back(self, buffer: memoryview) -> None:
        """Return *buffer* to the pool."""
        if len(self._spare) < _SPARE_BUFFERS:
            self._spare.append(buffer)


#: The process's pool.
POOL: Final = BufferPool()


class Batch:
    """Buffer in which one tunnel at a time collects packets for one frame.

    :param front: room for the frame's header, B.
    :param size: room for the packets, B.
    :ivar owner: the tunnel; None while the batch is empty.
    :ivar end: index of the next packet in `memory`; the first is at `front`.
    """

    def __init__(self, front: int, size: int) -> None:
        self.memory = memoryview(bytearray(front + size))
        self.front = self.end = front
        self.owner: object = None

    def put(self, data: bytes) -> bool:
        """Add a packet if there is room; return whether there was."""
        end = self.end + len(data)
        if end > len(self.memory):
            return False
        self.memory[self.end : end] = data
        self.end = end
        return True
