"""Bodies for Twisted's HTTP client: requests from memory, responses with a size limit; causes of failures."""

from __future__ import annotations

from typing import Any

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
from twisted.web.iweb import UNKNOWN_LENGTH, IBodyProducer, IResponse
from zope.interface import implementer

from tower.errors import PeerError, TowerError

#: Exceptions of Twisted's client, and of what opens pipes for it, if there is no response.
NO_RESPONSE = (
    defer.TimeoutError,
    TowerError,
    ConnectError,
    ConnectionClosed,
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
    ResponseNeverReceived,
)


class BodyTooLarge(PeerError):
    """A response's body exceeds the limit."""


def read_body(response: IResponse, limit: int) -> Deferred[bytes]:
    """Return the body of *response*.  Cancelling closes the connection.

    :raise BodyTooLarge: through the Deferred: it exceeds *limit* B, or its announced length does; the
        connection is closed.
    :raise ResponseFailed: through the Deferred: the connection was lost before its end.
    """
    collector = _Collector(limit)
    if response.length is not UNKNOWN_LENGTH and response.length > limit:
        collector.reject()
    response.deliverBody(collector)
    return collector.done


def cause_of(error: BaseException) -> BaseException:
    """Return the exception that Twisted's client wrapped in others."""
    cause: Any = error
    while reasons := getattr(cause, "reasons", None):
        cause = reasons[0].value if isinstance(reasons[0], Failure) else reasons[0]
    found: BaseException = cause
    return found


def describe_failure(error: BaseException) -> str:
    """Return the text of an error's cause, see `cause_of`."""
    cause = cause_of(error)
    return str(cause) or type(cause).__name__


@implementer(IBodyProducer)
class Body:
    """A request's body, written at once."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Write the whole body."""
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """No-op: all is written."""

    def resumeProducing(self) -> None:
        """No-op: all is written."""

    def stopProducing(self) -> None:
        """No-op: all is written."""


class _Collector(Protocol):
    """Collects the body of a response; cancelling `done`, which fires with it, closes the connection."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self.done: Deferred[bytes] = Deferred(lambda _: self._close())

    def reject(self) -> None:
        """Fail, and close the connection as soon as there is one."""
        self._close()
        self.done.errback(BodyTooLarge(f"the response has more than {self._limit} B"))

    def connectionMade(self) -> None:
        """Close the connection if the body is rejected already."""
        if self.done.called:
            self._close()

    def dataReceived(self, data: bytes) -> None:
        """Keep a piece within the limit."""
        if self.done.called:
            return
        self._size += len(data)
        self._pieces.append(data)
        if self._size > self._limit:
            self.reject()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Return the body, or fail if it is incomplete."""
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._pieces))
        else:
            self.done.errback(reason)

    def _close(self) -> None:
        self._pieces.clear()
        if self.transport is not None:
            self.transport.loseConnection()
