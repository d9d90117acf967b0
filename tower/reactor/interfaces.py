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
    """A reader that can also wait for its reactor's other descriptors; one system call waits for all."""

    def embed(descriptor: IReadDescriptor) -> None:
        """Call *descriptor*, which stands for the reactor's other descriptors, whenever it is readable."""

    def release() -> None:
        """Stop calling the embedded descriptor."""

    def iterate(timeout: float | None) -> None:
        """Wait at most *timeout* s (None: no limit), and call ready descriptors; the turns are limited."""

    def interrupt() -> None:
        """Return from `iterate` once the descriptors that are ready now were called."""
