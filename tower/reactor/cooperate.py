"""Long work, done in pieces between which the reactor does what else there is to do.

A thread is no way around it: parsers written in C keep the interpreter's lock to themselves, and those in
Python have everybody else wait for it at every turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: So many things of a list are looked at before others have their turn: some ms.
PIECE = 100

T = TypeVar("T")
R = TypeVar("R")


class _Line:
    """All who wait for a turn: of several lists that are read at the same time, one goes on at a time."""

    def __init__(self) -> None:
        self._waiting: deque[Deferred[None]] = deque()
        self._call: IDelayedCall | None = None

    @property
    def is_empty(self) -> bool:
        return self._call is None

    def join(self, clock: IReactorTime) -> Deferred[None]:
        waiting: Deferred[None] = Deferred(self._leave)
        self._waiting.append(waiting)
        self._go_on(clock)
        return waiting

    def _go_on(self, clock: IReactorTime) -> None:
        if self._call is None and self._waiting:
            self._call = clock.callLater(0, self._next, clock)

    def _next(self, clock: IReactorTime) -> None:
        self._call = None
        waiting = self._waiting.popleft()
        self._go_on(clock)
        waiting.callback(None)

    def _leave(self, waiting: Deferred[None]) -> None:
        self._waiting.remove(waiting)
        if not self._waiting and self._call is not None:
            self._call.cancel()
            self._call = None


# By clock, of which a process has one.
_lines: WeakKeyDictionary[IReactorTime, _Line] = WeakKeyDictionary()


def _line_of(clock: IReactorTime) -> _Line:
    return _lines.setdefault(clock, _Line())


async def yield_to_reactor(clock: IReactorTime) -> None:
    """Let everybody else have a turn."""
    await _line_of(clock).join(clock)


async def map_cooperatively(
    clock: IReactorTime, things: Iterable[T], work: Callable[[T], R], piece: int = PIECE
) -> list[R]:
    """Return what *work* makes of each of *things*.

    :param things: may be a generator, so that what they were made of need not be kept.
    :param piece: how many are done before others have a turn.
    """
    if not _line_of(clock).is_empty:
        await yield_to_reactor(clock)
    made: list[R] = []
    for thing in things:
        made.append(work(thing))
        if len(made) % piece == 0:
            await yield_to_reactor(clock)
    return made
