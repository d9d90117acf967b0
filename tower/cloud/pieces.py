"""Long work, done in pieces between which the reactor does what else there is to do.

A thread is no way around it: parsers written in C keep the interpreter's lock to themselves, and those in
Python have everybody else wait for it at every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from twisted.internet.task import deferLater

#: So many things of a list are looked at before others have their turn: some ms.
PIECE = 100

T = TypeVar("T")
R = TypeVar("R")


async def turn(clock: Any) -> None:
    """Let everybody else have a turn.

    :param clock: an ``IReactorTime``.
    """
    await deferLater(clock, 0)


async def in_pieces(clock: Any, things: Iterable[T], work: Callable[[T], R], piece: int = PIECE) -> list[R]:
    """Return what *work* makes of each of *things*.

    :param clock: an ``IReactorTime``.
    :param things: may be a generator, so that what they were made of need not be kept.
    :param piece: how many are done before others have a turn.
    """
    made: list[R] = []
    for thing in things:
        made.append(work(thing))
        if len(made) % piece == 0:
            await turn(clock)
    return made
