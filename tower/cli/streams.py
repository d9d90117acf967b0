"""Carrying connections of this machine over raw streams to a target of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tower.errors import TowerError
from tower.net.connection import Connection
from tower.net.pipes import Pipe, join
from tower.streamclient import FrontDoorAddress, open_stream


class Local:
    """Receiver of a connection of this machine until its stream is open; takes one piece at most.

    :ivar opening: the attempt to open the stream, given up when the connection goes.
    :ivar is_over: the connection has gone.
    """

    opening: Deferred[None] | None = None

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._early = b""
        self.is_over = self._ended = False

    def received(self, data: memoryview) -> None:
        """Keep the first bytes, and no more."""
        self._early += bytes(data)
        self.pipe.pause()

    def ended(self) -> None:
        """Note that the other side has sent everything."""
        self._ended = True

    def drained(self) -> None:
        """Nothing was sent."""

    def closed(self, reason: Exception) -> None:
        """Give the stream up."""
        self.is_over = True
        if self.opening is not None:
            self.opening.cancel()

    def fail(self) -> None:
        """Close the connection: there is no stream for it."""
        self.opening = None
        self.pipe.abort()

    def carry(self, stream: Pipe, leftover: bytes) -> None:
        """Copy both ways from now on; *leftover* came on the stream already."""
        if self._early:
            stream.send(self._early)
        if leftover:
            self.pipe.send(leftover)
        join(self.pipe, stream)
        if self._ended and not self.is_over:
            self.pipe.receiver.ended()


class Forwarder:
    """Opens a stream for each connection.

    :param way: returns the way, with a credential that is good for a while.
    :param dial: opens a connection to the proxy.
    :param say: tells the user what went wrong.
    """

    def __init__(
        self,
        way: Callable[[], Deferred[FrontDoorAddress]],
        dial: Callable[[FrontDoorAddress], Deferred[Connection]],
        say: Callable[[str], None],
        clock: Any,
    ) -> None:
        self._way = way
        self._dial = dial
        self._say = say
        self._clock = clock

    def accept(self, connection: Pipe) -> Local:
        """Take a new connection; see `tower.net.listening.listen`."""
        connection.receiver = local = Local(connection)  # now: all may be over before we return
        local.opening = Deferred.fromCoroutine(self._open(local)).addErrback(self._failed, local)
        return local

    async def _open(self, local: Local) -> None:
        way = await self._way()
        stream = await self._dial(way)
        leftover = await open_stream(stream, way, self._clock)
        local.carry(stream, leftover)

    def _failed(self, failure: Failure, local: Local) -> None:
        if local.is_over or failure.check(CancelledError):
            return  # the one who asked has gone
        local.fail()
        error = failure.value
        self._say(str(error) if isinstance(error, TowerError) else f"{type(error).__name__}: {error}")
