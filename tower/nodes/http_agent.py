"""HTTP to what nodes reach: a Twisted ``Agent`` whose connections somebody else dials."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as TooLate
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from tower.errors import TowerError
from tower.net.addresses import join_address
from tower.net.pipe_transport import connected
from tower.tunnels.tls_handshake import TLSHandshake

#: How long connecting may take, then TLS, and how long an idle connection is kept, s: what
#: kube-apiserver's transport to nodes, pods and services has.
CONNECT = 30.0
HANDSHAKE = 10.0
IDLE = 90

#: How many idle connections are kept for each host and port, as Kubernetes' clients do.
KEPT = 25

#: Returns a pipe, paused, to host and port; raises `TowerError`.  Cancelling leaves nothing.
Dial: TypeAlias = Callable[[str, int], Awaitable[Any]]


@implementer(IAgent)
class NodeAgent:
    """For treq: ``treq.get(url, agent=agent)``.

    :param tls: verifies, and identifies us to, who is reached by ``https``.
    """

    def __init__(self, reactor: Any, dial: Dial, tls: ssl.SSLContext) -> None:
        self._pool = HTTPConnectionPool(reactor)
        self._pool.cachedConnectionTimeout = IDLE
        self._pool.maxPersistentPerHost = KEPT
        ways = _NodeEndpoints(reactor, dial, tls)
        self._agent: Agent = Agent.usingEndpointFactory(reactor, ways, self._pool)

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """See ``IAgent``.

        :raise ConnectError: through the Deferred: nobody could be asked; it says why.
        """
        return self._agent.request(method, uri, headers, bodyProducer)

    def close_idle_connections(self) -> None:
        """Close what no request needs now."""
        self._pool.closeCachedConnections()


@implementer(IAgentEndpointFactory)
class _NodeEndpoints:
    """Makes an endpoint of a URL."""

    def __init__(self, reactor: Any, dial: Dial, tls: ssl.SSLContext) -> None:
        self._reactor = reactor
        self._dial = dial
        self._tls = tls

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Return how *uri* is reached.

        :raise SchemeNotSupported: it is neither ``http`` nor ``https``.
        """
        if uri.scheme not in (b"http", b"https"):
            raise SchemeNotSupported(f"Unsupported scheme: {uri.scheme!r}")
        tls = self._tls if uri.scheme == b"https" else None
        return _Dialled(self._reactor, self._dial, uri.host.decode("ascii"), uri.port, tls)


@implementer(IStreamClientEndpoint)
class _Dialled:
    """One host and port, with TLS or without."""

    def __init__(self, reactor: Any, dial: Dial, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._reactor = reactor
        self._dial = dial
        self._host = host
        self._port = port
        self._tls = tls

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``; cancelling leaves nothing behind."""
        address = HostnameAddress(self._host.encode("ascii"), self._port)
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, address)

    async def _open(self) -> tuple[Any, bytes]:
        try:
            pipe = await Deferred.fromCoroutine(self._dialled()).addTimeout(CONNECT, self._reactor)
            if self._tls is not None:
                # whoever is gone meanwhile is an error of the handshake
                pipe = await TLSHandshake(
                    pipe, self._tls, self._host, self._reactor, timeout=HANDSHAKE
                ).secured
        except TooLate:
            raise ConnectError(string=f"{self._place}: no connection in {CONNECT:g} s") from None
        except TowerError as e:
            raise ConnectError(string=f"{self._place}: {e}") from e
        return pipe, b""

    async def _dialled(self) -> Any:
        return await self._dial(self._host, self._port)

    @property
    def _place(self) -> str:
        return join_address(self._host, self._port)
