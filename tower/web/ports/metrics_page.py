"""The page ``/metrics`` of the front door."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from twisted.internet.defer import Deferred

from tower.metrics.page import CONTENT_TYPE
from tower.web.outcome import BodyStream, Outcome, Response, StreamingResponse

#: Returns a page in pieces.
MakePieces: TypeAlias = Callable[[], Deferred[list[bytes]]]

#: Largest page that is sent at once, B.
_WHOLE = 512 * 1024

_HEADERS = ((b"Content-Type", CONTENT_TYPE),)


def page_maker(make: MakePieces) -> Callable[[], Deferred[Outcome]]:
    """Return the function that makes the answer."""
    return lambda: make().addCallback(_answer)


def _answer(pieces: list[bytes]) -> Outcome:
    if sum(map(len, pieces)) <= _WHOLE:
        return Response(200, b"".join(pieces), _HEADERS)
    return StreamingResponse(partial(_write, deque(pieces)), headers=_HEADERS)


def _write(pieces: deque[bytes], stream: BodyStream) -> None:
    """Write *pieces*, each when the client has taken the last one."""

    def write() -> None:
        while pieces:
            if not stream.write(pieces.popleft()):
                return  # `on_drained` follows, or the client disconnected
        stream.finish()

    stream.on_drained = write
    write()
