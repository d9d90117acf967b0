"""Periodic calls that no error stops."""

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
