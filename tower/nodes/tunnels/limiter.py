"""A bound on how many tunnels are being opened at once."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Permits held at once.
MOST = 32

#: Longest time that a permit counts, s; after it, its holder goes on and the next permit starts.
PATIENCE = 2.0


class Limiter:
    """First come, first served.

    Without it, a fleet that comes up at once has all its key exchanges in the same moment, a few milliseconds
    of the processor each, and every open stream waits for them.  A node that does not answer needs no
    processor, so it delays others by `PATIENCE` at most: the last of 200
    silent nodes is tried after 12 s, before the next listing.
    """

    def __init__(self, clock: IReactorTime, most: int = MOST, patience: float = PATIENCE) -> None:
        self.clock = clock
        self.patience = patience
        self._most = most
        self._waiting: dict[Permit, None] = {}
        self._running = 0

    def queue(self, permit: Permit) -> None:
        """Start *permit* as soon as there is room, possibly at once."""
        self._waiting[permit] = None
        self._next()

    def left(self, permit: Permit, *, began: bool) -> None:
        """Start the next permit."""
        if began:
            self._running -= 1
            self._next()
        else:
            self._waiting.pop(permit, None)

    def _next(self) -> None:
        while self._waiting and self._running < self._most:
            permit = next(iter(self._waiting))
            del self._waiting[permit]
            self._running += 1
            permit.start()


class Permit:
    """Permission to open one tunnel: `ask` for it, and `end` it in any case.

    :param begin: called when it is granted, possibly from within `ask`.
    """

    __slots__ = ("_begin", "_limiter", "_timer")

    def __init__(self, limiter: Limiter, begin: Callable[[], None]) -> None:
        self._limiter: Limiter | None = limiter
        self._begin = begin
        self._timer: IDelayedCall | None = None

    def ask(self) -> None:
        """Join the queue."""
        if self._limiter is not None:
            self._limiter.queue(self)

    def start(self) -> None:
        """Grant it; called by `Limiter`."""
        assert self._limiter is not None
        self._timer = self._limiter.clock.callLater(self._limiter.patience, self.end)
        self._begin()

    def end(self) -> None:
        """Give it back, or leave the queue; a second call does nothing."""
        limiter, self._limiter = self._limiter, None
        timer, self._timer = self._timer, None
        if limiter is None:
            return
        if timer is not None and timer.active():
            timer.cancel()
        limiter.left(self, began=timer is not None)
