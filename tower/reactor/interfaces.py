"""Types of reactors, where one of Twisted's interfaces alone is not enough.

A part that needs timers takes ``IReactorTime``, or `tower.reactor.timers.Clock` where a `Wheel` will do.
"""

# ruff: noqa: N805 (methods of interfaces have no self)

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import (
    IReactorCore,
    IReactorFDSet,
    IReactorProcess,
    IReactorTCP,
    IReactorThreads,
    IReactorTime,
    IReadDescriptor,
)
from zope.interface import Attribute


class ISocketReactor(IReactorTime, IReactorFDSet):
    """Timers, descriptors and name resolution: a `tower.reactor.poller.Poller`, or Twisted's reactor."""

    nameResolver: Any = Attribute("The ``IHostnameResolver``.")


class IReactor(ISocketReactor, IReactorCore, IReactorTCP, IReactorThreads, IReactorProcess):
    """Twisted's reactor: all that Tower's programs use of it."""


class IEmbeddingReader(IReadDescriptor):
    """A reader that can wait for its reactor's other descriptors too, so that both need one system call."""

    def embed(descriptor: IReadDescriptor) -> None:
        """Call *descriptor*, which stands for the reactor's other descriptors, whenever it is readable."""

    def release() -> None:
        """Call the embedded descriptor no longer."""

    def iterate(timeout: float | None) -> None:
        """Wait and call ready descriptors, for *timeout* s or without a limit, a bounded number of times."""

    def interrupt() -> None:
        """Return from `iterate` once the descriptors that are ready now were called."""
