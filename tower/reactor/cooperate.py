"""Long work in pieces, between which the reactor runs.

A thread would not help: parsers in C hold the interpreter's lock, and parsers in Python compete for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Items per piece; a piece takes some milliseconds.
PIECE = 100

T = TypeVar("T")
R = TypeVar("R")


class _Queue:
    """Tasks that wait for the reactor: only one long list continues per iteration."""

    def __init__(self) -> None:
        self._waiting: deque[Deferred[None]] = deque()
        self._call: IDelayedCall | None = None

    @property
    def is_empty(self) -> bool:
        return self._call is None

    def wait(self, clock: IReactorTime) -> Deferred[None]:
        waiting: Deferred[None] = Deferred(self._cancelled)
        self._waiting.append(waiting)
        self._schedule(clock)
        return waiting

    def _schedule(self, clock: IReactorTime) -> None:
        if self._call is None and self._waiting:
            self._call = clock.callLater(0, self._next, clock)

    def _next(self, clock: IReactorTime) -> None:
        self._call = None
        waiting = self._waiting.popleft()
        self._schedule(clock)
        waiting.callback(None)

    def _cancelled(self, waiting: Deferred[None]) -> None:
        self._waiting.remove(waiting)
        if not self._waiting and self._call is not None:
            self._call.cancel()
            self._call = None


# By clock; a process has one.
_queues: WeakKeyDictionary[IReactorTime, _Queue] = WeakKeyDictionary()


def _queue_of(clock: IReactorTime) -> _Queue:
    return _queues.setdefault(clock, _Queue())


async def yield_to_reactor(clock: IReactorTime) -> None:
    """Let the reactor run all other work once."""
    await _queue_of(clock).wait(clock)


async def map_cooperatively(
    clock: IReactorTime, items: Iterable[T], work: Callable[[T], R], piece: int = PIECE
) -> list[R]:
    """Return the result of *work* for each of *items*.

    :param items: may be a generator, so that its source need not be kept.
    :param piece: items per iteration of the reactor.
    """
    if not _queue_of(clock).is_empty:
        await yield_to_reactor(clock)
    results: list[R] = []
    for item in items:
        results.append(work(item))
        if len(results) % piece == 0:
            await yield_to_reactor(clock)
    return results
