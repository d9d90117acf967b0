"""The delayed calls of one connection, by name, so that none is left behind."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Timers:
    """Delayed calls; there is at most one of each name."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: dict[str, IDelayedCall] = {}

    def set(self, name: str, delay: float, call: Callable[[], None]) -> None:
        """Have *call* called in *delay* s, instead of what was set under that name."""
        self.cancel(name)

        def due() -> None:
            del self._calls[name]
            call()

        self._calls[name] = self._clock.callLater(delay, due)

    def cancel(self, name: str) -> None:
        """Have nothing called under that name."""
        call = self._calls.pop(name, None)
        if call is not None:
            call.cancel()

    def cancel_all(self) -> None:
        """Have nothing called at all."""
        for name in list(self._calls):
            self.cancel(name)
