"""Forwards connections of this machine over raw streams to a target of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tower.errors import TowerError
from tower.net.connection import Connection
from tower.net.pipes import Pipe, join
from tower.streamclient import FrontDoorAddress, open_stream


class Local:
    """Receiver of a local connection until its stream is open; accepts at most one piece of data.

    :ivar opening: the attempt to open the stream, cancelled when the connection closes.
    :ivar is_over: the connection is closed.
    """

    opening: Deferred[None] | None = None

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._early = b""
        self.is_over = self._ended = False

    def received(self, data: memoryview) -> None:
        """Keep the first piece, and pause."""
        self._early += bytes(data)
        self.pipe.pause()

    def ended(self) -> None:
        """Remember the end of the data."""
        self._ended = True

    def drained(self) -> None:
        """No-op: nothing was sent."""

    def closed(self, reason: Exception) -> None:
        """Cancel the attempt to open the stream."""
        self.is_over = True
        if self.opening is not None:
            self.opening.cancel()

    def fail(self) -> None:
        """Abort the connection: its stream was not opened."""
        self.opening = None
        self.pipe.abort()

    def forward(self, stream: Pipe, leftover: bytes) -> None:
        """Forward data in both directions; *leftover* was already received on the stream."""
        if self._early:
            stream.send(self._early)
        if leftover:
            self.pipe.send(leftover)
        join(self.pipe, stream)
        if self._ended and not self.is_over:
            self.pipe.receiver.ended()


class Forwarder:
    """Opens a stream for each connection.

    :param address: returns the front door's address, with a valid credential.
    :param dial: connects to the proxy.
    :param report: shows an error to the user.
    """

    def __init__(
        self,
        address: Callable[[], Deferred[FrontDoorAddress]],
        dial: Callable[[FrontDoorAddress], Deferred[Connection]],
        report: Callable[[str], None],
        clock: IReactorTime,
    ) -> None:
        self._address = address
        self._dial = dial
        self._report = report
        self._clock = clock

    def accept(self, connection: Pipe) -> Local:
        """Accept a new connection; see `tower.net.listening.listen`."""
        connection.receiver = local = Local(connection)  # now: it may close before we return
        local.opening = Deferred.fromCoroutine(self._open(local)).addErrback(self._failed, local)
        return local

    async def _open(self, local: Local) -> None:
        address = await self._address()
        stream = await self._dial(address)
        leftover = await open_stream(stream, address, self._clock)
        local.forward(stream, leftover)

    def _failed(self, failure: Failure, local: Local) -> None:
        if local.is_over or failure.check(CancelledError):
            return  # the connection is closed
        local.fail()
        error = failure.value
        self._report(str(error) if isinstance(error, TowerError) else f"{type(error).__name__}: {error}")
