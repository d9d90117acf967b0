"""A Twisted ``IAgent`` whose connections are dialed by a function, such as through node tunnels."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from attrs import frozen
from twisted.internet import defer
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IReactorTime, IStreamClientEndpoint
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from tower.errors import TowerError
from tower.http.response_heads import LimitedHeads
from tower.net.addresses import join_address
from tower.net.pipe_transport import connected
from tower.tunnels.tls_handshake import TLSHandshake

#: Time limits for connecting and for TLS, and lifetime of idle connections, s, as in kube-apiserver's
#: transport to nodes, pods and services.
CONNECT = 30.0
HANDSHAKE = 10.0
IDLE = 90

#: Idle connections kept for each host and port, as in Kubernetes' clients.
KEPT = 25

#: Returns a paused pipe to host and port; raises `TowerError`.  Cancelling leaves nothing.
Dial: TypeAlias = Callable[[str, int], Awaitable[Any]]


@implementer(IAgent, IAgentEndpointFactory)
class NodeAgent:
    """For treq: ``treq.get(url, agent=agent)``.

    :param tls: for ``https``.
    """

    def __init__(self, reactor: IReactorTime, dial: Dial, tls: ssl.SSLContext) -> None:
        self._pool = HTTPConnectionPool(reactor)
        self._pool.cachedConnectionTimeout = IDLE
        self._pool.maxPersistentPerHost = KEPT
        self._reactor, self._dial, self._tls = reactor, dial, tls
        self._agent: Agent = Agent.usingEndpointFactory(reactor, self, self._pool)

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """See ``IAgent``; fail with ConnectError and its reason if the connection fails."""
        return self._agent.request(method, uri, headers, bodyProducer)

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See ``IAgentEndpointFactory``; raise SchemeNotSupported except for ``http`` and ``https``."""
        if uri.scheme not in (b"http", b"https"):
            raise SchemeNotSupported(f"Unsupported scheme: {uri.scheme!r}")
        tls = self._tls if uri.scheme == b"https" else None
        endpoint = _NodeEndpoint(self._reactor, self._dial, uri.host.decode("ascii"), uri.port, tls)
        return LimitedHeads(endpoint)

    def close_idle_connections(self) -> None:
        """Close the idle connections."""
        self._pool.closeCachedConnections()


@implementer(IStreamClientEndpoint)
@frozen
class _NodeEndpoint:
    """One host and port, with or without TLS."""

    reactor: IReactorTime
    dial: Dial
    host: str
    port: int
    tls: ssl.SSLContext | None

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``; cancelling leaves nothing behind."""
        address = HostnameAddress(self.host.encode("ascii"), self.port)
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, address)

    async def _open(self) -> tuple[Any, bytes]:
        try:
            pipe = await Deferred.fromCoroutine(self._dialed()).addTimeout(CONNECT, self.reactor)
            if self.tls is not None:
                # a connection lost meanwhile is an error of the handshake
                pipe = await TLSHandshake(pipe, self.tls, self.host, self.reactor, timeout=HANDSHAKE).secured
        except defer.TimeoutError:
            raise ConnectError(string=f"{self._address}: no connection within {CONNECT:g} s") from None
        except TowerError as e:
            raise ConnectError(string=f"{self._address}: {e}") from e
        return pipe, b""

    async def _dialed(self) -> Any:
        return await self.dial(self.host, self.port)

    @property
    def _address(self) -> str:
        return join_address(self.host, self.port)
