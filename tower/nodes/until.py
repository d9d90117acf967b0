"""A timer that waits after its work, not beside it, and that nothing its work does can end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure


class Until(Service):
    """While it runs, does its work at once, and again *period* s after it was done.

    Go's ``wait.Until``: work that takes long is never done twice at once, and never at the heels of itself.
    Whatever it raises is logged; it is done again when its time comes.

    :param clock: an ``IReactorTime``.
    :param work: has to handle what it expects to fail; it is cancelled when the service stops.
    :param timeout: when it is cancelled because it takes too long, s.
    """

    _log = Logger()

    def __init__(
        self, clock: Any, period: float, work: Callable[[], Awaitable[object]], timeout: float
    ) -> None:
        self._clock = clock
        self._period = period
        self._work = work
        self._timeout = timeout
        self._waiting: IDelayedCall | None = None
        self._working: Deferred[Any] | None = None
        self._pause = period
        self._done_at = 0.0

    def startService(self) -> None:
        """Begin; a second call does nothing."""
        if not self.running:
            super().startService()  # type: ignore[no-untyped-call]
            if self._working is None:
                self._do()
            else:  # what was cancelled still has something to do
                self._pause = 0

    def stopService(self) -> Deferred[None]:
        """End, and cancel what is being done."""
        super().stopService()  # type: ignore[no-untyped-call]
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
        if self._working is not None:
            self._working.cancel()
        return succeed(None)

    def hurry(self) -> None:
        """Wait no longer, if it runs; what is being done now is done once more."""
        self.hurry_after(0)

    def hurry_after(self, pause: float) -> None:
        """The same, but wait until *pause* s are over since the work was last done."""
        now = self._clock.seconds()
        if self._working is not None:
            self._pause = min(self._pause, pause)
        elif self._waiting is not None and self._done_at + pause <= now:
            self._waiting.cancel()
            self._do()
        elif self._waiting is not None and self._done_at + pause < self._waiting.getTime():
            self._waiting.reset(self._done_at + pause - now)

    def _do(self) -> None:
        self._waiting = None
        self._pause = self._period
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
        self._done_at = self._clock.seconds()
        if self.running:
            self._waiting = self._clock.callLater(self._pause, self._do)
