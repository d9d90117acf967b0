"""A timer that waits after its work, not beside it, and that nothing its work does can end."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure


class RepeatingTask(Service):
    """While it runs, does its work at once, and again *period* s after it was done.

    Go's ``wait.Until``: work that takes long is never done twice at once, and never at the heels of itself.
    Whatever it raises is logged; it is done again when its time comes.

    :param work: has to handle what it expects to fail; it is cancelled when the service stops.
    :param timeout: when it is cancelled because it takes too long, s.
    """

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, period: float, work: Callable[[], Awaitable[object]], timeout: float
    ) -> None:
        self._clock = clock
        self._period = period
        self._work = work
        self._timeout = timeout
        self._waiting: IDelayedCall | None = None
        self._working: Deferred[Any] | None = None
        self._hurried = math.inf  # when what is being done is wanted once more
        self._next = -math.inf  # when it was, or is to be, done because of `run_soon_at_most_every`

    def startService(self) -> None:
        """Begin; a second call does nothing."""
        if not self.running:
            super().startService()  # type: ignore[no-untyped-call]
            if self._working is None:
                self._do()
            else:  # what was cancelled still has something to do
                self._hurried = 0.0

    def stopService(self) -> Deferred[None]:
        """End, and cancel what is being done."""
        super().stopService()  # type: ignore[no-untyped-call]
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        if self._working is not None:
            self._working.cancel()
        return succeed(None)

    def run_soon(self) -> None:
        """Wait no longer, if it runs; what is being done now is done once more."""
        self._run_by(self._clock.seconds())

    def run_soon_at_most_every(self, pause: float) -> None:
        """The same, but let *pause* s pass between two times that were hurried so."""
        now = self._clock.seconds()
        if self._next <= now:
            self._next = max(now, self._next + pause)
        self._run_by(self._next)

    def _run_by(self, moment: float) -> None:
        if self._working is not None:
            self._hurried = min(self._hurried, moment)
        elif self._waiting is not None and moment <= self._clock.seconds():
            self._waiting.cancel()
            self._do()
        elif self._waiting is not None and moment < self._waiting.getTime():
            self._waiting.reset(moment - self._clock.seconds())

    def _do(self) -> None:
        self._waiting = None
        self._hurried = math.inf
        self._working = working = Deferred.fromCoroutine(self._attempt())
        working.addTimeout(self._timeout, self._clock)
        working.addErrback(self._failed)
        working.addCallback(self._done)

    async def _attempt(self) -> None:
        await self._work()

    def _failed(self, failure: Failure) -> None:
        if self.running:
            self._log.failure(
                "a timer's work failed; it is tried again in {period:g} s", failure, period=self._period
            )

    def _done(self, _: object) -> None:
        self._working = None
        if self.running:
            wait = min(self._period, max(0.0, self._hurried - self._clock.seconds()))
            self._waiting = self._clock.callLater(wait, self._do)
