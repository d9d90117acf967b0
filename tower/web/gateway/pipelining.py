"""Bytes of requests that are not served yet."""

from __future__ import annotations

from tower.http.requests import HEAD_LIMIT, check_unfinished
from tower.net.pipes import Buffer

#: Bytes of further requests that are kept while one is being served, B.
PIPELINED = HEAD_LIMIT


class Pipelined:
    """Complete requests, from index *at* of *data* on, or the beginning of one."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data: bytes | bytearray = data
        self._at = at

    @property
    def held(self) -> int:
        """The memory it occupies, B."""
        return len(self._data)

    @property
    def unread(self) -> int:
        """Number of bytes from the first request on."""
        return len(self._data) - self._at

    @property
    def is_full(self) -> bool:
        """Whether the connection must be paused."""
        return self.unread > PIPELINED

    def take(self) -> tuple[bytes, int]:
        """Return the bytes and the index of the first request."""
        return bytes(self._data), self._at

    def add(self, data: Buffer) -> None:
        """Append *data*."""
        grown = self._writable()
        grown += data

    def add_to_head(self, data: Buffer) -> bool:
        """Append to an incomplete head; return whether it is complete now.

        :raise BadHead: it cannot become a valid head.
        """
        head = self._writable()
        start = max(len(head) - 3, 0)
        head += data
        if head.find(b"\r\n\r\n", start) >= 0:
            return True
        check_unfinished(head, start)
        return False

    def _writable(self) -> bytearray:
        data = self._data
        if isinstance(data, bytes):
            data = self._data = bytearray(data[self._at :])
            self._at = 0
        return data
