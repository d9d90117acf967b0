"""Asking a stand-in of a cloud in memory, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar, cast

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from tower.cloud.session import CloudSession
from tower.reactor.interfaces import IReactor

T = TypeVar("T")

START = 1_790_000_000.0  # s since the epoch
STEP = 0.25  # s


class Longest(Random):
    """Draws the longest wait each time."""

    def uniform(self, a: float, b: float) -> float:
        """Return *b*."""
        return b


def asking(resource: Any, clock: Clock) -> Callable[[Any], CloudSession]:
    """Return what makes sessions that ask *resource*, and draw the longest waits."""
    return lambda reactor: CloudSession(
        reactor, agent=RequestTraversalAgent(resource), rng=Longest(), now=clock.seconds
    )


def started_clock() -> Clock:
    """Return a clock that starts at a time of day."""
    clock = Clock()
    clock.advance(START)
    return clock


def finish(clock: Clock, work: Awaitable[T], limit: float = 600.0) -> T:
    """Advance the clock until *work* is done; return its result or raise its error.

    :param limit: s that may go by.
    """
    results: list[Any] = []
    doing = Deferred.fromCoroutine(_await(work))
    doing.addBoth(results.append)
    ends = clock.seconds() + limit
    while not results and clock.seconds() < ends:
        clock.advance(STEP)
    if not results:
        doing.cancel()
        raise AssertionError(f"not done within {limit} s")
    if hasattr(results[0], "raiseException"):
        results[0].raiseException()
    result: T = results[0]
    return result


async def _await(work: Awaitable[T]) -> T:
    return await work


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect what is logged, as text; it is there once the block has ended."""
    lines: list[str] = []
    with capturedLogs() as events:
        yield lines
    lines += [formatEvent(event) for event in events]


def as_reactor(clock: object) -> IReactor:
    """Return a clock where a reactor is required but only its timers are used."""
    return cast(IReactor, clock)
