"""Bodies of requests and answers of Twisted's HTTP client, whole and bounded, and why there is no answer."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.internet.defer import TimeoutError as TooLate
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

#: What Twisted's client and those who open pipes raise.
NO_ANSWER = (
    TooLate,
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

    :raise PeerError: through the Deferred: it is longer than *limit* B; the connection is closed.
    :raise ResponseFailed: through the Deferred: it broke off.
    """
    collector = _Collector(limit)
    response.deliverBody(collector)
    return collector.done


def why(error: BaseException) -> str:
    """Say what happened, from inside whatever Twisted's client wrapped it in."""
    while reasons := getattr(error, "reasons", None):
        error = reasons[0].value
    return str(error) or type(error).__name__


@implementer(IBodyProducer)
class Body:
    """A body that is there already."""

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
    """Gets the body of an answer.

    :ivar done: fires with all of it.  Cancelling it closes the connection.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self.done: Deferred[bytes] = Deferred(lambda _: self._leave())

    def _leave(self) -> None:
        self._pieces.clear()
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Keep a piece, unless it is too much."""
        self._size += len(data)
        if self.done.called:
            return
        if self._size > self._limit:
            self.done.errback(PeerError(f"an answer of more than {self._limit} B"))
            self._leave()
        else:
            self._pieces.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Note the end of the body, or that it broke off."""
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._pieces))
        else:
            self.done.errback(reason)
