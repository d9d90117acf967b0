"""Timers whose bodies cannot stop them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.application.internet import TimerService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

_log = Logger()


def periodic(
    reactor: IReactorTime, period: float, body: Callable[[], Awaitable[object] | object]
) -> TimerService:
    """Return a service that calls *body* now and every *period* s.

    Twisted's ``TimerService`` ends at the first exception; here whatever *body* raises is logged, and it is
    called again when its time comes.  It is not called while its last result, if awaitable, is not there.
    """

    async def call() -> None:
        try:
            result = body()
            if isinstance(result, Awaitable):
                await result
        except Exception:  # noqa: BLE001 (the one place where everything must be caught)
            _log.failure("a timer's work failed; it is tried again in {period} s", period=period)

    timer = TimerService(period, lambda: Deferred.fromCoroutine(call()))
    timer.clock = reactor
    return timer
