"""Two clocks: monotonic time for timers, and the time of day for timestamps.

Twisted's reactors run timers by the time of day.  If it is set back by an hour, no deadline passes for an
hour, no keepalive is sent, and a dead peer stays; if it is set forward, every deadline passes at once, and
every tunnel is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer


def count_steadily(reactor: Any) -> None:
    """Make *reactor*, a ``ReactorBase``, run its timers by monotonic time, as ``IReactorTime`` allows."""
    step = time.monotonic() - reactor.seconds()
    reactor.seconds = time.monotonic
    for call in reactor.getDelayedCalls():
        call.time += step
        call.seconds = time.monotonic


@implementer(IReactorTime)
class TimeOfDay:
    """A clock with the time of day and with the reactor's monotonic timers."""

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor

    def seconds(self) -> float:
        """Return Unix time, s."""
        return time.time()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> IDelayedCall:  # noqa: A002
        """Call *callable* in *delay* s of monotonic time."""
        return self._reactor.callLater(delay, callable, *args, **kw)

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return the reactor's delayed calls."""
        return self._reactor.getDelayedCalls()
