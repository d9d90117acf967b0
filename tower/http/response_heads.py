"""A limit on the heads of responses, which Twisted's HTTP client lacks: a server could fill the memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.errors import PeerError

#: Largest head of a response, with interim responses before it, B.
LIMIT: Final = 256 * 1024


class HeadTooLarge(PeerError):
    """A response's head exceeds `LIMIT`."""


@implementer(IStreamClientEndpoint)
@frozen
class LimitedHeads:
    """Connects Twisted's HTTP client to *endpoint*.

    A request whose response has a head of more than `LIMIT` fails, with `HeadTooLarge` as the reason, and its
    connection is closed.
    """

    _endpoint: IStreamClientEndpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``."""
        connecting: Deferred[Any] = self._endpoint.connect(_Factory(protocolFactory))  # type: ignore[no-untyped-call]
        return connecting.addCallback(lambda limiter: limiter.client)


class _Limiter(ProtocolWrapper):
    """Counts the bytes after a request until the client pauses its transport, at the end of the head."""

    transport: Any

    def __init__(self, factory: _Factory, client: IProtocol) -> None:
        super().__init__(factory, client)
        self.client = client
        self._head: int | None = 0
        self._reason: Failure | None = None

    def write(self, data: bytes) -> None:
        """Send a part of a request."""
        self._head = 0
        self.transport.write(data)

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send a part of a request."""
        self._head = 0
        self.transport.writeSequence(data)

    def pauseProducing(self) -> None:
        """Stop counting: a body follows, whose reader has a limit."""
        self._head = None
        self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        """Deliver bytes within the limit."""
        if self._reason is not None:
            return
        if self._head is not None:
            self._head += len(data)
        self.client.dataReceived(data)
        if self._head is not None and self._head > LIMIT:
            self._reason = Failure(HeadTooLarge(f"the head of the response has more than {LIMIT} B"))
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report the limit as the reason."""
        super().connectionLost(self._reason or reason)  # type: ignore[no-untyped-call]


class _Factory(WrappingFactory[_Limiter]):
    """Builds clients with a limiter."""

    def buildProtocol(self, addr: IAddress | None) -> _Limiter:
        """Return the limiter of a new client."""
        return _Limiter(self, self.wrappedFactory.buildProtocol(addr))
