"""The body of a user's request: its framing, and the function that receives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tower.http.bodies import CHUNKED, ChunkedBody
from tower.net.pipes import Buffer

#: Receives a piece of a body; returns False when it has no more room.
BodyTaker: TypeAlias = Callable[[Buffer], bool]


class RequestBody:
    """The rest of one request's body, of *length* B or `CHUNKED`."""

    __slots__ = ("_chunks", "_full", "_left", "_take")

    def __init__(self, length: int) -> None:
        self._chunks = ChunkedBody() if length == CHUNKED else None
        self._left = length
        self._take: BodyTaker | None = None
        self._full = False

    @property
    def blocked(self) -> bool:
        """Whether there is no taker, or it has no room."""
        return self._full or self._take is None

    def follow(self, data: Buffer, start: int = 0) -> int:
        """Follow the body in *data* from index *start*; return the index of its end, or -1 if it continues.

        :raise BadBody: the framing is invalid.
        """
        if self._chunks is not None:
            return self._chunks.feed(data, start)
        stop = start + self._left
        self._left = stop - len(data)
        return stop if self._left <= 0 else -1

    def give_to(self, taker: BodyTaker | None, *, roomy: bool) -> None:
        """See `tower.web.gateway.http_channel.HTTPChannel.take_body`."""
        self._take, self._full = taker, not roomy

    def pass_on(self, data: Buffer) -> bool:
        """Give *data* to the taker; return whether it has room for more."""
        assert self._take is not None, "the connection is paused while the body has no taker"
        roomy = self._take(data)
        if not roomy:
            self._full = True
        return roomy

    def drained(self) -> bool:
        """Record that the taker has room again; return whether it had none."""
        was_full, self._full = self._full, False
        return was_full
