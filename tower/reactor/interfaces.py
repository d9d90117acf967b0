"""Types of reactors, where one of Twisted's interfaces alone is not enough.

A part that needs timers takes ``IReactorTime``, or `tower.reactor.timers.Clock` where a `Wheel` will do.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import (
    IReactorCore,
    IReactorFDSet,
    IReactorProcess,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
)
from zope.interface import Attribute


class ISocketReactor(IReactorTime, IReactorFDSet):
    """Timers, descriptors and name resolution: a `tower.reactor.poller.Poller`, or Twisted's reactor."""

    nameResolver: Any = Attribute("The ``IHostnameResolver``.")


class IReactor(ISocketReactor, IReactorCore, IReactorTCP, IReactorThreads, IReactorProcess):
    """Twisted's reactor: all that Tower's programs use of it."""
