"""Two times: a steady one for everything that waits, and the time of day for what is written down.

Twisted's reactors time their calls by the time of day.  When that is set back by an hour, for an hour no
deadline passes, nobody is probed, and a dead peer stays; when it is set forward, every deadline passes at
once, and every tunnel is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer


def count_steadily(reactor: Any) -> None:
    """Have *reactor* time its calls, those that wait already too, by a clock that nobody sets.

    From here on its ``seconds()`` count from some moment in the past, as `IReactorTime` allows.

    :param reactor: a ``twisted.internet.base.ReactorBase``.
    """
    step = time.monotonic() - reactor.seconds()
    reactor.seconds = time.monotonic
    for call in reactor.getDelayedCalls():
        call.time += step
        call.seconds = time.monotonic


@implementer(IReactorTime)
class TimeOfDay:
    """Tells the time of day, and has calls made by a clock that nobody sets.

    :param reactor: makes the calls.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor

    def seconds(self) -> float:
        """Return the time, s since the epoch."""
        return time.time()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> IDelayedCall:  # noqa: A002
        """Call *callable* in *delay* s, however the time of day is set meanwhile."""
        return self._reactor.callLater(delay, callable, *args, **kw)

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return the reactor's delayed calls."""
        return self._reactor.getDelayedCalls()
