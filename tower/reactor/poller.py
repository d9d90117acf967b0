"""All sockets of Tower behind one descriptor in the reactor.

Twisted's reactors call every descriptor within a logging context, which costs more than receiving a small
packet, and do not signal the end of an iteration.  A `Poller` has its own epoll: the reactor sees one
descriptor, readable when a socket is ready, and the poller calls the sockets.  It works in every reactor that
can wait for a descriptor, and uses no private attribute of any.

In `tower.reactor.epoll_reactor`, the poller waits for the reactor's descriptors too (`Poller.iterate`).

In other reactors, the poller keeps control while bytes keep coming, for at most `LINGER` seconds, and waits
as long again for the last of them: timers, threads and other descriptors are late by no more than that.

While several sockets are ready at once, the end of the iteration is deferred until none is or `GATHERED` were
called: output leaves in larger pieces, and peers wake less often.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from twisted.internet.interfaces import IDelayedCall, IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import classImplements

from tower.reactor.interfaces import IEmbeddingReader, ISocketReactor
from tower.reactor.turn import Turn

#: How long the reactor waits while bytes keep coming, and how soon the next must come, s.  For a wait shorter
#: than its tick, 4 ms, the kernel sets the processor's timer before and after, which in a virtual machine is
#: a third of its work for a packet.
LINGER: Final = 0.004
SOON: Final = 0.001

#: Calls of sockets after which an iteration ends even if more are ready.
GATHERED: Final = 32

#: Turns after which `Poller.iterate` returns to the reactor, which then also removes cancelled timers.
TURNS: Final = 32

#: Longest iteration of a reactor without timers, s.
_FOREVER: Final = 3600.0

#: Events per epoll call.
_EVENTS: Final = 256

_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_BROKEN: Final = select.EPOLLERR | select.EPOLLHUP
_READABLE: Final = _IN | _BROKEN
_WRITABLE: Final = _OUT | _BROKEN


class Poller:
    """Reactor of connections and tunnels.

    A broken socket is reported as readable or writable, whichever is waited for: the system call then returns
    the error.

    :param reactor: waits for the poller's one descriptor; provides timers and the name resolver.
    :ivar turn: the current turn.
    """

    _log: ClassVar[Logger] = Logger()

    def __init__(self, reactor: ISocketReactor) -> None:
        self._reactor = reactor
        self.seconds = reactor.seconds
        self._epoll = select.epoll()
        self._readers: dict[int, Any] = {}
        self._writers: dict[int, Any] = {}
        self._fresh: set[int] = set()
        self._calls: list[Callable[[], None]] = []
        self._turning = self._scheduled = False
        self._hurried = False
        self._left = -LINGER
        self._embedded: Any = None
        self.turn = Turn()

    # IReactorTime, and the name resolver

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> IDelayedCall:  # noqa: A002
        """See ``IReactorTime``."""
        if delay < LINGER:
            self._hurried = True
        return self._reactor.callLater(delay, callable, *args, **kw)

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return the reactor's delayed calls."""
        return self._reactor.getDelayedCalls()

    @property
    def nameResolver(self) -> Any:
        """The reactor's name resolver."""
        return self._reactor.nameResolver

    # IReactorFDSet

    def addReader(self, reader: Any) -> None:
        """Call ``reader.doRead`` when there is something to receive."""
        self._add(reader, self._readers, self._writers)

    def addWriter(self, writer: Any) -> None:
        """Call ``writer.doWrite`` when there is room to send."""
        self._add(writer, self._writers, self._readers)

    def removeReader(self, reader: Any) -> None:
        """Undo `addReader`."""
        self._remove(reader, self._readers, self._writers)

    def removeWriter(self, writer: Any) -> None:
        """Undo `addWriter`."""
        self._remove(writer, self._writers, self._readers)

    def removeAll(self) -> list[Any]:
        """Remove all descriptors and return them."""
        removed = list({id(each): each for each in (*self.getReaders(), *self.getWriters())}.values())
        for each in removed:
            self.removeReader(each)
            self.removeWriter(each)
        return removed

    def getReaders(self) -> list[Any]:
        """Return the descriptors that wait for bytes."""
        return [each for each in self._readers.values() if each is not self._embedded]

    def getWriters(self) -> list[Any]:
        """Return the descriptors that wait for room."""
        return list(self._writers.values())

    @property
    def _is_empty(self) -> bool:
        return not self._writers and len(self._readers) == (self._embedded is not None)

    def _add(self, descriptor: Any, here: dict[int, Any], there: dict[int, Any]) -> None:
        fd = descriptor.fileno()
        if fd in here:
            return
        if fd in there:
            self._epoll.modify(fd, _IN | _OUT)
        else:
            if self._is_empty:
                self._reactor.addReader(self)
            self._register(fd, _IN if here is self._readers else _OUT)
        here[fd] = descriptor

    def _register(self, fd: int, events: int) -> None:
        self._epoll.register(fd, events)
        if self._turning:
            self._fresh.add(fd)

    def _remove(self, descriptor: Any, here: dict[int, Any], there: dict[int, Any]) -> None:
        fd = descriptor.fileno()
        if here.get(fd) is not descriptor:
            return
        del here[fd]
        if fd in there:
            self._epoll.modify(fd, _IN if there is self._readers else _OUT)
            return
        self._epoll.unregister(fd)
        if self._is_empty:
            self._reactor.removeReader(self)

    # The end of an iteration

    def soon(self, call: Callable[[], None]) -> None:
        """Call *call* once all sockets that are ready now were called; an error in it is logged."""
        self._calls.append(call)
        if not (self._turning or self._scheduled or self._embedded):
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._reactor.callLater(0, self._late)

    def _late(self) -> None:
        self._scheduled = False
        self._end_turn()

    def _end_turn(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception:  # noqa: BLE001 - one that fails must not end the others
                self._log.failure("error in a call at the end of an iteration")

    # IReadDescriptor, for the reactor

    def fileno(self) -> int:
        """Return the epoll descriptor."""
        return self._epoll.fileno()

    def logPrefix(self) -> str:
        """Return the name for the reactor's log lines."""
        return "sockets"

    def doRead(self) -> None:
        """Call the sockets that are ready, and continue while bytes keep coming."""
        poll, seconds = self._epoll.poll, self.seconds
        began = seconds()
        patience = LINGER if began - self._left < SOON else 0.0
        wait = 0.0
        gathered = 0
        self._turning, self._hurried = True, False
        try:
            while not self._hurried:
                events = poll(wait, _EVENTS)
                if not (events or self._calls):
                    break
                self._serve(events)
                if self._calls:
                    gathered += len(events)
                    if len(events) > 1 and gathered < GATHERED and not self._hurried:
                        wait = 0.0
                        continue
                    gathered = 0
                    self._end_turn()
                wait = 0.0 if self._calls else patience
                if seconds() - began > LINGER:
                    break
        finally:
            self._turning = False
            self._left = seconds()
        if self._calls:
            self._schedule()

    def _serve(self, events: list[tuple[int, int]]) -> None:
        readers, writers, fresh = self._readers, self._writers, self._fresh
        self.turn.is_lone = len(events) == 1
        for fd, event in events:
            if fd in fresh:
                continue  # the event is of a closed socket that had the same descriptor number
            try:
                if event & _READABLE and fd in readers:
                    readers[fd].doRead()
                if event & _WRITABLE and fd in writers:
                    writers[fd].doWrite()
            except Exception:  # noqa: BLE001 - one that fails must not end the others
                self._failed(fd)
        fresh.clear()

    def _failed(self, fd: int) -> None:
        failure = Failure()
        descriptor = None if fd in self._fresh else self._readers.get(fd) or self._writers.get(fd)
        if descriptor is None:
            self._log.failure("error in a socket that is closed", failure)
            return
        self._log.failure("error in {descriptor}", failure, descriptor=descriptor.logPrefix())
        self.removeReader(descriptor)
        self.removeWriter(descriptor)
        descriptor.connectionLost(failure)

    # IEmbeddingReader, for `tower.reactor.epoll_reactor`

    def embed(self, descriptor: IReadDescriptor) -> None:
        """See `IEmbeddingReader`."""
        fd = descriptor.fileno()
        self._register(fd, _IN)
        self._embedded = self._readers[fd] = descriptor

    def release(self) -> None:
        """See `IEmbeddingReader`."""
        fd, self._embedded = self._embedded.fileno(), None
        del self._readers[fd]
        self._epoll.unregister(fd)
        self._hurried = True  # the reactor waits for the next turn
        if self._calls and not self._turning:
            self._schedule()

    def iterate(self, timeout: float | None) -> None:
        """See `IEmbeddingReader`.

        A turn calls each ready socket once.  While several are ready and calls of `soon` wait, it polls
        again, until `GATHERED` sockets were called.
        """
        poll, seconds = self._epoll.poll, self.seconds
        wait = _FOREVER if timeout is None else timeout
        until = seconds() + wait
        self._turning, self._hurried = True, False
        try:
            for _ in range(TURNS):
                events = poll(0.0 if self._calls else wait, _EVENTS)
                self._serve(events)
                gathered = len(events)
                while self._calls and len(events) > 1 and gathered < GATHERED:
                    events = poll(0.0, _EVENTS)
                    self._serve(events)
                    gathered += len(events)
                if self._calls:
                    self._end_turn()
                wait = until - seconds()
                if self._hurried or wait <= 0:
                    break
        finally:
            self._turning = False
        if self._calls and self._embedded is None:
            self._schedule()

    def interrupt(self) -> None:
        """See `IEmbeddingReader`."""
        self._hurried = True

    def connectionLost(self, reason: Failure) -> None:
        """Close all sockets: the reactor is shutting down."""
        for descriptor in self.removeAll():
            descriptor.connectionLost(reason)
        self._epoll.close()


classImplements(Poller, IEmbeddingReader, ISocketReactor)
