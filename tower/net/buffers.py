"""Buffers of the process that tunnels receive into and gather in, each lent to one tunnel at a time."""

from __future__ import annotations

#: Size of the buffers that bytes are received into: two of the longest packets, B.
BUFFER_SIZE = 576 * 1024

#: Buffers kept for the next reader.
_SPARE_BUFFERS = 4


class BufferPool:
    """Buffers that bytes are received into, each lent to one tunnel at a time."""

    def __init__(self) -> None:
        self._spare: list[memoryview] = []

    def take(self) -> memoryview:
        """Return a buffer of `BUFFER_SIZE`."""
        return self._spare.pop() if self._spare else memoryview(bytearray(BUFFER_SIZE))

    def give_back(self, buffer: memoryview) -> None:
        """Keep *buffer* for the next."""
        if len(self._spare) < _SPARE_BUFFERS:
            self._spare.append(buffer)


#: The process's own.
POOL = BufferPool()


class Batch:
    """Where one tunnel at a time gathers packets that leave together.

    :param front: room to be left for a frame's header, B.
    :param size: of the packets, B.
    :ivar owner: whose packets these are; None if there are none.
    :ivar end: where the next packet goes in `memory`; the first is at `front`.
    """

    def __init__(self, front: int, size: int) -> None:
        self.memory = memoryview(bytearray(front + size))
        self.front = self.end = front
        self.owner: object = None

    def put(self, data: bytes) -> bool:
        """Add a packet, if there is room."""
        end = self.end + len(data)
        if end > len(self.memory):
            return False
        self.memory[self.end : end] = data
        self.end = end
        return True
