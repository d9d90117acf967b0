"""Grace periods: a state counts only once it has lasted for some time."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime


@define(eq=False)
class GracePeriods:
    """The grace periods of one state of several clusters.

    :param grace: length, s.
    :param callback: called with the cluster's name when a period ends.
    """

    _clock: IReactorTime
    _grace: float
    _callback: Callable[[str], None]
    _timers: dict[str, IDelayedCall] = field(factory=dict, init=False)
    _over: set[str] = field(factory=set, init=False)

    def lasts(self, name: str, holds: bool, *, at_once: bool = False) -> bool:
        """Return whether the state, which now *holds* or not, has lasted for the whole period.

        :param at_once: end the period now.
        """
        if not holds:
            self.forget(name)
        elif at_once:
            self.forget(name)
            self._over.add(name)
        elif name not in self._over and name not in self._timers:
            self._timers[name] = self._clock.callLater(self._grace, self._end, name)
        return name in self._over

    def forget(self, name: str) -> None:
        """Forget the state of a cluster."""
        self._over.discard(name)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        """Forget all."""
        for name in list(self._timers):
            self.forget(name)
        self._over.clear()

    def _end(self, name: str) -> None:
        del self._timers[name]
        self._over.add(name)
        self._callback(name)
