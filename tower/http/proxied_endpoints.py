"""Endpoints of clouds' APIs: direct, or through the HTTP proxy of the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from attrs import define
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.web.client import URI
from twisted.web.error import SchemeNotSupported
from twisted.web.iweb import IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

from tower.http.response_heads import LimitedHeads
from tower.net.connect_proxy import connect_through
from tower.net.connecting import ConnectFailed, connect
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe
from tower.net.proxy_environment import HTTPProxy, ServerURL, find_proxy
from tower.reactor.interfaces import IReactor

#: Metadata services identify clients by their location, and return credentials.
_METADATA_NAMES = frozenset(("metadata.google.internal", "metadata"))
_METADATA_ADDRESSES = frozenset(map(ip_address, ("fd00:ec2::254", "fd00:ec2::23")))


@implementer(IAgentEndpointFactory)
@define(eq=False, repr=False)
class ProxiedEndpoints:
    """Endpoints of URLs, for an ``Agent``.

    Servers with plain HTTP, metadata services above all, are near and never proxied.

    :param timeout: for a connection, s; the caller limits the rest.
    :param environ: may have ``HTTPS_PROXY`` and ``NO_PROXY``; see `find_proxy`.
    :raise ConfigurationError: a variable about proxies is invalid.
    """

    _reactor: IReactor
    _policy: IPolicyForHTTPS
    _timeout: float
    _environ: Mapping[str, str]
    _connect: Callable[..., Deferred[Any]] = connect

    def __attrs_post_init__(self) -> None:
        find_proxy(_server("cloud.invalid", 443), self._environ)

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """Return an endpoint of *uri*'s server.

        :raise SchemeNotSupported: the scheme is neither ``http`` nor ``https``.
        """
        host = uri.host.decode("ascii")
        direct = HostnameEndpoint(self._reactor, host, uri.port, timeout=self._timeout)
        if uri.scheme == b"http":
            return LimitedHeads(direct)
        if uri.scheme != b"https":
            raise SchemeNotSupported(f"Unsupported scheme: {uri.scheme!r}")
        url = _server(host.lower(), uri.port)
        proxy = None if _is_metadata(url.host.rstrip(".")) else find_proxy(url, self._environ)
        endpoint: IStreamClientEndpoint = direct
        if proxy is not None:
            endpoint = _ProxiedEndpoint(self._reactor, proxy, url, self._timeout, self._connect)
        return LimitedHeads(wrapClientTLS(self._policy.creatorForNetloc(uri.host, uri.port), endpoint))


def _server(host: str, port: int) -> ServerURL:
    return ServerURL(secure=True, host=host, port=port, resource="/")


def _is_metadata(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host in _METADATA_NAMES
    return address.is_link_local or address in _METADATA_ADDRESSES


@implementer(IStreamClientEndpoint)
@define(eq=False, repr=False)
class _ProxiedEndpoint:
    """A server behind an HTTP proxy."""

    _reactor: IReactor
    _proxy: HTTPProxy
    _url: ServerURL
    _timeout: float
    _connect: Callable[..., Deferred[Any]]

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See ``IStreamClientEndpoint``; cancelling closes everything.

        :raise ConnectFailed: through the Deferred: the proxy cannot be reached, or refused.
        """
        address = HostnameAddress(self._url.host.encode("ascii"), self._url.port)
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, address)

    async def _open(self) -> tuple[Pipe, bytes]:
        proxy = self._proxy
        try:
            pipe = await self._connect(self._reactor, proxy.host, proxy.port, timeout=self._timeout)
        except ConnectFailed as e:
            raise ConnectFailed(e.kind, f"the HTTP proxy {e}") from e
        await connect_through(pipe, proxy, self._url)
        return pipe, b""
