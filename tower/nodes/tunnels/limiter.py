"""Who may begin now: many want to open something at once, and only so many may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall

#: How many have a turn at once.
MOST = 32

#: How long a turn lasts at the most, s; then who has it goes on without, and the next one begins.
PATIENCE = 2.0


class Limiter:
    """First come, first served.

    A fleet that comes up at once would otherwise have all its key exchanges in the same moment, a few
    milliseconds of the processor each, and every stream under way would wait for them.  A node that does not
    answer needs no processor, so it keeps nobody waiting for longer than `PATIENCE`: of 200 nodes of which
    none answers, the last is tried after 12 s, before the next list comes.

    :param clock: an ``IReactorTime``.
    """

    def __init__(self, clock: Any, most: int = MOST, patience: float = PATIENCE) -> None:
        self.clock = clock
        self.patience = patience
        self._most = most
        self._waiting: dict[Permit, None] = {}
        self._running = 0

    def queue(self, turn: Permit) -> None:
        """Have *turn* begin when it is its time, which may be at once."""
        self._waiting[turn] = None
        self._next()

    def left(self, turn: Permit, *, began: bool) -> None:
        """Let the next one begin."""
        if began:
            self._running -= 1
            self._next()
        else:
            self._waiting.pop(turn, None)

    def _next(self) -> None:
        while self._waiting and self._running < self._most:
            turn = next(iter(self._waiting))
            del self._waiting[turn]
            self._running += 1
            turn.start()


class Permit:
    """One's place in the queue, and then one's turn: `ask` for it, and `end` it in any case.

    :param begin: called when it has come, which may be from within `ask`.
    """

    __slots__ = ("_begin", "_timer", "_turns")

    def __init__(self, turns: Limiter, begin: Callable[[], None]) -> None:
        self._turns: Limiter | None = turns
        self._begin = begin
        self._timer: IDelayedCall | None = None

    def ask(self) -> None:
        """Queue up."""
        if self._turns is not None:
            self._turns.queue(self)

    def start(self) -> None:
        """Have it; called by `Limiter`."""
        assert self._turns is not None
        self._timer = self._turns.clock.callLater(self._turns.patience, self.end)
        self._begin()

    def end(self) -> None:
        """Leave it, or the queue, to others; a second call does nothing."""
        turns, self._turns = self._turns, None
        timer, self._timer = self._timer, None
        if turns is None:
            return
        if timer is not None and timer.active():
            timer.cancel()
        turns.left(self, began=timer is not None)
