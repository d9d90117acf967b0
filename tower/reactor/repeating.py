"""Periodic work that is never run twice at once and that no error ends."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.application.internet import TimerService
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

_log = Logger()


class RepeatingTask(Service):
    """A service that does its work at once, and again *period* s after it was done (Go's ``wait.Until``).

    An error of the work is logged; it is repeated after the period.

    :param work: handles expected errors itself; cancelled when the service stops.
    :param timeout: time after which the work is cancelled, s.
    """

    def __init__(
        self, clock: IReactorTime, period: float, work: Callable[[], Awaitable[object]], timeout: float
    ) -> None:
        self._clock = clock
        self._period = period
        self._work = work
        self._timeout = timeout
        self._waiting: IDelayedCall | None = None
        self._working: Deferred[Any] | None = None
        self._again = math.inf  # earliest time of the repetition that was requested during the work
        self._next = -math.inf  # last time requested by `run_soon_at_most_every`

    def startService(self) -> None:
        """Start; a second call does nothing."""
        if not self.running:
            super().startService()  # type: ignore[no-untyped-call]
            if self._working is None:
                self._do()
            else:  # the cancelled work has not ended yet
                self._again = 0.0

    def stopService(self) -> Deferred[None]:
        """Stop, and cancel the current work."""
        super().stopService()  # type: ignore[no-untyped-call]
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        if self._working is not None:
            self._working.cancel()
        return succeed(None)

    def run_soon(self) -> None:
        """Do the work now, if the service runs; repeat it at once if it is being done."""
        self._run_by(self._clock.seconds())

    def run_soon_at_most_every(self, pause: float) -> None:
        """Do the same, but at most every *pause* s."""
        now = self._clock.seconds()
        if self._next <= now:
            self._next = max(now, self._next + pause)
        self._run_by(self._next)

    def _run_by(self, moment: float) -> None:
        if self._working is not None:
            self._again = min(self._again, moment)
        elif self._waiting is not None and moment <= self._clock.seconds():
            self._waiting.cancel()
            self._do()
        elif self._waiting is not None and moment < self._waiting.getTime():
            self._waiting.reset(moment - self._clock.seconds())

    def _do(self) -> None:
        self._waiting = None
        self._again = math.inf
        self._working = working = Deferred.fromCoroutine(self._attempt())
        working.addTimeout(self._timeout, self._clock)
        working.addErrback(self._failed)
        working.addCallback(self._done)

    async def _attempt(self) -> None:
        await self._work()

    def _failed(self, failure: Failure) -> None:
        if self.running:
            _log.failure("periodic work failed; it is repeated in {period:g} s", failure, period=self._period)

    def _done(self, _: object) -> None:
        self._working = None
        if self.running:
            wait = min(self._period, max(0.0, self._again - self._clock.seconds()))
            self._waiting = self._clock.callLater(wait, self._do)


def periodic(
    reactor: IReactorTime, period: float, body: Callable[[], Awaitable[object] | object]
) -> TimerService:
    """Return a service that calls *body* now and every *period* s, but not before its last call has ended.

    Twisted's ``TimerService`` ends at the first exception; here it is logged, and *body* is called again.
    """

    async def call() -> None:
        try:
            result = body()
            if isinstance(result, Awaitable):
                await result
        except Exception:  # noqa: BLE001 - logged; the next call may succeed
            _log.failure("periodic work failed; it is repeated in {period} s", period=period)

    timer = TimerService(period, lambda: Deferred.fromCoroutine(call()))
    timer.clock = reactor
    return timer
