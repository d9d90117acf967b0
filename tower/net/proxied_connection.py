"""Connections to servers: direct or through an HTTP proxy, with TLS or without."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from twisted.internet import defer
from twisted.internet.defer import Deferred

from tower.net.connect_proxy import connect_through
from tower.net.connecting import ConnectFailed, connect
from tower.net.connection import Connection, ConnectionEnded
from tower.net.proxy_environment import HTTPProxy, ServerURL
from tower.net.tls.connection import TLSFailed, start_tls
from tower.reactor.interfaces import ISocketReactor


async def open_connection(
    reactor: ISocketReactor,
    url: ServerURL,
    proxy: HTTPProxy | None,
    *,
    tls: ssl.SSLContext | None,
    server_name: str,
    timeout: float,
    connect: Callable[..., Deferred[Connection]] = connect,
) -> Connection:
    """Connect to the server of *url*, through *proxy* if given, with *tls* if given.

    The connection is paused.

    :param server_name: required in the server's certificate.
    :param timeout: of the connection, of the HTTP proxy's answer and of its TLS handshake, each, s.
    :raise ConnectFailed: with the failed part.
    """
    if proxy is None:
        return await connect(
            reactor, url.host, url.port, tls=tls, server_hostname=server_name, timeout=timeout
        )
    pipe = await connect(reactor, proxy.host, proxy.port, timeout=timeout)
    try:
        await connect_through(pipe, proxy, url).addTimeout(timeout, reactor)
    except defer.TimeoutError:
        text = f"the HTTP proxy {proxy} did not answer within {timeout:g} s"
        raise ConnectFailed("timeout", text) from None
    if tls is None:
        return pipe
    sock = pipe.detach()
    try:
        return await start_tls(reactor, sock, tls, server_name, handshake_timeout=timeout)
    except ValueError as e:
        sock.close()
        raise ConnectFailed("tls", f"{url.authority}: {server_name!r} is not a valid server name") from e
    except (TLSFailed, ConnectionEnded, OSError) as e:
        raise ConnectFailed("tls", f"{url.authority}: {e}") from e
