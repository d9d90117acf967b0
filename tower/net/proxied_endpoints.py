"""Endpoints for URLs: direct, or through the HTTP proxy of the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import URI
from twisted.web.error import SchemeNotSupported
from twisted.web.iweb import IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from tower.net.connect_proxy import connect_through
from tower.net.connecting import ConnectFailed, connect
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe
from tower.net.proxy_environment import HTTPProxy, ServerURL, find_proxy
from tower.reactor.interfaces import IReactor

#: Metadata services authenticate clients by their address and issue credentials: never through a proxy.
_METADATA_NAMES = frozenset(("metadata.google.internal", "metadata"))
_METADATA_ADDRESSES = frozenset(map(ip_address, ("fd00:ec2::254", "fd00:ec2::23")))


@implementer(IAgentEndpointFactory)
class ProxiedEndpoints:
    """Endpoints for an ``Agent``.

    Plain HTTP, mainly of metadata services, is always direct.

    :param policy: verifies servers.
    :param timeout: of a connection, s; the caller limits the rest.
    :param environ: may have ``HTTPS_PROXY`` and ``NO_PROXY``; see `find_proxy`.
    :param reach: connects; see `tower.net.connecting.connect`.
    :raise ConfigurationError: the proxy's URL is invalid.
    """

    def __init__(
        self,
        reactor: IReactor,
        policy: IPolicyForHTTPS,
        timeout: float,
        environ: Mapping[str, str],
        reach: Callable[..., Deferred[Any]] = connect,
    ) -> None:
        self._reactor = reactor
        self._policy = policy
        self._timeout = timeout
        self._environ = environ
        self._reach = reach
        find_proxy(_server("cloud.invalid", 443), environ)

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Return the endpoint for *uri*.

        :raise SchemeNotSupported: it is neither ``http`` nor ``https``.
        """
        host = uri.host.decode("ascii")
        direct = HostnameEndpoint(self._reactor, host, uri.port, timeout=self._timeout)
        if uri.scheme == b"http":
            return direct
        if uri.scheme != b"https":
            raise SchemeNotSupported(f"Unsupported scheme: {uri.scheme!r}")
        url = _server(host.lower(), uri.port)
        proxy = None if _is_metadata(url.host.rstrip(".")) else find_proxy(url, self._environ)
        endpoint: IStreamClientEndpoint = direct
        if proxy is not None:
            endpoint = _ProxiedEndpoint(self._reactor, proxy, url, self._timeout, self._reach)
        return wrapClientTLS(self._policy.creatorForNetloc(uri.host, uri.port), endpoint)


def _server(host: str, port: int) -> ServerURL:
    return ServerURL(secure=True, host=host, port=port, resource="/")


def _is_metadata(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host in _METADATA_NAMES
    return address.is_link_local or address in _METADATA_ADDRESSES


@implementer(IStreamClientEndpoint)
class _ProxiedEndpoint:
    """A server behind an HTTP proxy."""

    def __init__(
        self,
        reactor: IReactor,
        proxy: HTTPProxy,
        url: ServerURL,
        timeout: float,
        reach: Callable[..., Deferred[Any]],
    ) -> None:
        self._reactor = reactor
        self._proxy = proxy
        self._url = url
        self._timeout = timeout
        self._reach = reach

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``; cancelling closes everything.

        :raise ConnectFailed: through the Deferred: the connection to the proxy failed, or the proxy rejects
            it.
        """
        address = HostnameAddress(self._url.host.encode("ascii"), self._url.port)
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, address)

    async def _open(self) -> tuple[Pipe, bytes]:
        proxy = self._proxy
        try:
            pipe = await self._reach(self._reactor, proxy.host, proxy.port, timeout=self._timeout)
        except ConnectFailed as e:
            raise ConnectFailed(e.kind, f"the HTTP proxy {e}") from e
        await connect_through(pipe, proxy, self._url)
        return pipe, b""
