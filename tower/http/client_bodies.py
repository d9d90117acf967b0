"""Request and response bodies of Twisted's HTTP client, bounded in size, and the reason of a failure."""

from __future__ import annotations

from twisted.internet import defer
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import (
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IBodyProducer, IResponse
from zope.interface import implementer

from tower.errors import PeerError, TowerError

#: Errors of Twisted's client and of opening a pipe.
NO_ANSWER = (
    defer.TimeoutError,
    TowerError,
    ConnectError,
    ConnectionClosed,
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)


def read_body(response: IResponse, limit: int) -> Deferred[bytes]:
    """Return the body of *response*.  Cancelling closes its connection.

    :raise PeerError: through the Deferred: the body is longer than *limit* B; the connection is closed.
    :raise ResponseFailed: through the Deferred: the body is incomplete.
    """
    collector = _Collector(limit)
    response.deliverBody(collector)
    return collector.done


def why(error: BaseException) -> str:
    """Return the text of the error that Twisted's client wrapped."""
    while reasons := getattr(error, "reasons", None):
        error = reasons[0].value
    return str(error) or type(error).__name__


@implementer(IBodyProducer)
class Body:
    """A request body in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Send all of it."""
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Nothing is left to send."""

    def resumeProducing(self) -> None:
        """Nothing is left to send."""

    def stopProducing(self) -> None:
        """Nothing is left to send."""


class _Collector(Protocol):
    """Collects the body of a response.

    :ivar done: fires with the whole body.  Cancelling it closes the connection.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self.done: Deferred[bytes] = Deferred(lambda _: self._close())

    def _close(self) -> None:
        self._pieces.clear()
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Add a piece, up to the limit."""
        self._size += len(data)
        if self.done.called:
            return
        if self._size > self._limit:
            self.done.errback(PeerError(f"an answer of more than {self._limit} B"))
            self._close()
        else:
            self._pieces.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fire with the body, or with the reason why it is incomplete."""
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._pieces))
        else:
            self.done.errback(reason)
