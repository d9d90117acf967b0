"""Twisted's HTTP/1.1 client over pipes that the caller opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from tower.http.client_bodies import Body
from tower.http.response_heads import LimitedHeads
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe

#: How long an idle connection is kept, s; it occupies one node's tunnel.
IDLE = 5

#: The URL's host is unused: the endpoint ignores it, and the head has the caller's ``Host``.
_ORIGIN = b"http://member"
_MEMBER = HostnameAddress(b"member", 80)


class PipeAgent:
    """Sends requests to one server.

    :param open_pipe: opens a paused pipe to the server.
    :param kept: most idle connections; 0: one connection per request.
    """

    def __init__(self, reactor: IReactorTime, open_pipe: Callable[[], Awaitable[Pipe]], kept: int) -> None:
        self._pool = HTTPConnectionPool(reactor, persistent=kept > 0)
        self._pool.cachedConnectionTimeout = IDLE
        self._pool.maxPersistentPerHost = kept
        self._pool.retryAutomatically = False  # it retries cancelled requests, without a timeout
        self._agent: Agent = Agent.usingEndpointFactory(reactor, _PipeEndpoint(open_pipe), self._pool)

    def request(
        self, method: bytes, target: bytes, headers: Headers, body: bytes | None
    ) -> Deferred[IResponse]:
        """Return the response, whose body is still to be delivered.  Cancelling closes the connection.

        :param target: path and query.
        """
        producer = None if body is None else Body(body)
        return _cancellable(self._agent.request(method, _ORIGIN + target, headers, producer))

    def close(self) -> None:
        """Close idle connections."""
        self._pool.closeCachedConnections()


def _cancellable(doing: Deferred[IResponse]) -> Deferred[IResponse]:
    """Return a Deferred that fails with `CancelledError` if it is cancelled.

    Twisted's client closes the connection to cancel a request.  A pipe reports that at once, so *doing* fails
    with a lost connection instead.
    """
    is_cancelled = False

    def cancel(_: object) -> None:
        nonlocal is_cancelled
        is_cancelled = True
        doing.cancel()

    def done(outcome: Any) -> None:
        if not is_cancelled:
            result.callback(outcome)

    result: Deferred[IResponse] = Deferred(cancel)
    doing.addBoth(done)
    return result


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
@define(eq=False)
class _PipeEndpoint:
    """Runs a protocol on a newly opened pipe; the same endpoint for all URLs."""

    _open_pipe: Callable[[], Awaitable[Pipe]]

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See `IAgentEndpointFactory`."""
        return LimitedHeads(self)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a pipe; cancelling cancels the opening."""
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, _MEMBER)

    async def _open(self) -> tuple[Pipe, bytes]:
        return await self._open_pipe(), b""
