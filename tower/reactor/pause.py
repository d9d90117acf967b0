"""A wait that another part may end early."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime


@define(eq=False)
class Pause:
    """One wait at a time."""

    _clock: IReactorTime
    _waiting: Deferred[None] | None = field(default=None, init=False)

    async def wait(self, delay: float) -> None:
        """Return after *delay* s, or at the next `end`; `cancel` raises `CancelledError` here."""
        self._waiting = waiting = Deferred[None]()
        timer = self._clock.callLater(delay, self.end)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer.active():
                timer.cancel()

    def end(self) -> None:
        """End the wait, if there is one."""
        if self._waiting is not None and not self._waiting.called:
            self._waiting.callback(None)

    def cancel(self) -> None:
        """Cancel the wait, if there is one."""
        if self._waiting is not None:
            self._waiting.cancel()
