"""What a user has sent of requests that are not served yet."""

from __future__ import annotations

from tower.http.requests import HEAD_LIMIT, check_unfinished
from tower.net.pipes import Buffer

#: Bytes of further requests that are kept while one is being served, B.
PIPELINED = HEAD_LIMIT


class Pipelined:
    """Whole requests, or the beginning of one.

    :param data: is where they are.
    :param at: where in it they begin.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data: bytes | bytearray = data
        self._at = at

    @property
    def held(self) -> int:
        """How much memory it takes, B."""
        return len(self._data)

    @property
    def too_much(self) -> bool:
        """Whether nothing more is to be read for now."""
        return len(self._data) - self._at > PIPELINED

    def take(self) -> tuple[bytes, int]:
        """Return the bytes, and where in them the requests begin."""
        return bytes(self._data), self._at

    def add(self, data: Buffer) -> None:
        """Add what came next."""
        grown = self._growing()
        grown += data

    def add_to_head(self, data: Buffer) -> bool:
        """Add to the beginning of a head; return whether it is whole now.

        :raise BadHead: it can no longer become a good one.
        """
        head = self._growing()
        start = max(len(head) - 3, 0)
        head += data
        if head.find(b"\r\n\r\n", start) >= 0:
            return True
        check_unfinished(head, start)
        return False

    def _growing(self) -> bytearray:
        """Return the bytes as something that can grow."""
        data = self._data
        if isinstance(data, bytes):
            data = self._data = bytearray(data[self._at :])
            self._at = 0
        return data
