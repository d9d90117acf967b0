"""The reactor of Tower's programs and of ``twistd --reactor tower``: Twisted's epoll reactor with our poller.

In other reactors, a `tower.reactor.poller.Poller` is one of the reactor's descriptors.  Here it is the
reverse: the poller waits, and Twisted's epoll is one of its descriptors.  So a turn with one packet costs one
``epoll_wait``.  The poller returns to Twisted's main loop when a timer is due, was added or moved to an
earlier time; when one of Twisted's descriptors is ready, such as the waker for signals and calls from
threads; when the reactor stops; and after `tower.reactor.poller.TURNS` turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.internet.main import installReactor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.reactor.interfaces import IEmbeddingReader


@implementer(IReadDescriptor)
class _TwistedDescriptors:
    """Twisted's epoll as a descriptor."""

    _log = Logger()

    def __init__(self, fd: int, poll: Callable[[], None]) -> None:
        self._fd = fd
        self._poll = poll

    def fileno(self) -> int:
        return self._fd

    def logPrefix(self) -> str:
        return "reactor"

    def doRead(self) -> None:
        try:
            self._poll()
        except Exception:  # noqa: BLE001 - as in Twisted's main loop, which continues
            self._log.failure("error in the reactor")

    def connectionLost(self, reason: Failure) -> None:
        """Nothing to close: the epoll is the reactor's."""


@implementer(IReactorFDSet)
class TowerReactor(EPollReactor):
    """Twisted's epoll reactor; the first reader that offers `IEmbeddingReader` waits for all descriptors."""

    def __init__(self) -> None:
        self._embedding: Any = None
        self._twisted_poll: Callable[[float | None], None] = super().doPoll
        self._wait: Callable[[float | None], None] = self._twisted_poll
        super().__init__()  # type: ignore[no-untyped-call]
        self._others = _TwistedDescriptors(self._poller.fileno(), self._poll_others)

    def doPoll(self, timeout: float | None) -> None:
        """Wait at most *timeout* s, and call the ready descriptors."""
        self._wait(timeout)

    doIteration = doPoll

    # Reasons for the poller to return to the main loop

    def _poll_others(self) -> None:
        self._interrupt()
        self._twisted_poll(0.0)

    def _interrupt(self) -> None:
        if self._embedding is not None:
            self._embedding.interrupt()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> DelayedCall:  # noqa: A002
        """See ``IReactorTime``."""
        self._interrupt()
        return super().callLater(delay, callable, *args, **kw)

    def _moveCallLaterSooner(self, call: DelayedCall) -> None:
        self._interrupt()
        super()._moveCallLaterSooner(call)

    def stop(self) -> None:
        """See ``IReactorCore``."""
        self._interrupt()
        super().stop()

    def crash(self) -> None:
        """See ``IReactorCore``."""
        self._interrupt()
        super().crash()

    # IReactorFDSet

    def addReader(self, reader: Any) -> None:
        """See ``IReactorFDSet``; the first `IEmbeddingReader` also waits for the others."""
        if self._embedding is None and IEmbeddingReader.providedBy(reader):
            reader.embed(self._others)
            self._embedding, self._wait = reader, reader.iterate
        elif reader is not self._embedding:
            super().addReader(reader)  # type: ignore[no-untyped-call]

    def removeReader(self, reader: Any) -> None:
        """See ``IReactorFDSet``."""
        if reader is self._embedding:
            self._embedding, self._wait = None, self._twisted_poll
            reader.release()
        else:
            super().removeReader(reader)  # type: ignore[no-untyped-call]

    def getReaders(self) -> list[Any]:
        """See ``IReactorFDSet``."""
        own: list[Any] = super().getReaders()  # type: ignore[no-untyped-call]
        return own if self._embedding is None else [*own, self._embedding]

    def removeAll(self) -> list[Any]:
        """See ``IReactorFDSet``."""
        embedding = self._embedding
        if embedding is not None:
            self.removeReader(embedding)
        removed: list[Any] = super().removeAll()  # type: ignore[no-untyped-call]
        return removed if embedding is None else [*removed, embedding]


def install() -> None:
    """Install the reactor."""
    installReactor(TowerReactor())
