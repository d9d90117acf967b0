"""The body of a user's request, from the end of the head on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tower.http.bodies import CHUNKED, ChunkedBody
from tower.net.pipes import Buffer

#: Takes a piece of a body; returns False when it is full.
BodyTaker: TypeAlias = Callable[[Buffer], bool]


class RequestBody:
    """What is still to come of one request's body, and who takes it.

    :param length: B, or `CHUNKED`.
    """

    __slots__ = ("_chunks", "_full", "_left", "_take")

    def __init__(self, length: int) -> None:
        self._chunks = ChunkedBody() if length == CHUNKED else None
        self._left = length
        self._take: BodyTaker | None = None
        self._full = False

    @property
    def blocked(self) -> bool:
        """Whether nobody takes any of it for now."""
        return self._full or self._take is None

    def follow(self, data: Buffer, start: int = 0) -> int:
        """Follow the body through *data* from index *start*.

        :return: the index just behind it, or -1 while it goes on.
        :raise BadBody: nobody can tell where it ends.
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
        """Give *data* to the taker; return False when it is full."""
        assert self._take is not None, "the connection is paused while nobody takes the body"
        roomy = self._take(data)
        if not roomy:
            self._full = True
        return roomy

    def drained(self) -> bool:
        """Note that the taker has room again; return whether it had none."""
        was_full, self._full = self._full, False
        return was_full
