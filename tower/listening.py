"""Ports whose connections are `tower.connection.Connection` from the first byte.

`ConnectionReactor` offers ``listenTCP`` alone, so that Twisted's own ``TCPServer`` service and everything
else that listens through a reactor's ``listenTCP`` works with it unchanged.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory

from tower.connection import Connection
from tower.pipes import Receiver
from tower.tlsconnection import TLSConnection

#: Called with each new connection; returns who gets it, or None to drop it.
Accept = Callable[[Connection], Receiver | None]


class _Accepted:
    """Looks like a protocol to Twisted's port and hands the connection on."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept

    def makeConnection(self, connection: Connection) -> None:
        """Give the connection its receiver and start it."""
        receiver = self._accept(connection)
        if receiver is None:
            connection.abort()
            return
        connection.receiver = receiver
        connection.resume()


class ConnectionFactory(Factory):
    """A factory for ports of a `ConnectionReactor`."""

    noisy = False

    def __init__(self, accept: Accept) -> None:
        self._accept = accept

    def buildProtocol(self, addr: Any) -> Any:
        """Return what hands the connection from *addr* on."""
        return _Accepted(self._accept)


class _Port(tcp.Port):
    """Twisted's port with its documented hook ``transport`` replaced."""

    def __init__(self, tls: ssl.SSLContext | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tls = tls

    def transport(  # type: ignore[override]
        self, skt: Any, protocol: Any, addr: Any, port: Any, number: int, reactor: Any
    ) -> Connection:
        """Make the connection for an accepted socket."""
        if self._tls is None:
            return Connection(reactor, skt)
        return TLSConnection(reactor, skt, self._tls)


class ConnectionReactor:
    """:param tls: what connections are wrapped in, if anything."""

    def __init__(self, reactor: Any, tls: ssl.SSLContext | None = None) -> None:
        self._reactor = reactor
        self._tls = tls

    def listenTCP(
        self, port: int, factory: Factory, backlog: int = 1024, interface: str = ""
    ) -> IListeningPort:
        """Listen; connections are `Connection` objects.

        :raise twisted.internet.error.CannotListenError: the port is taken or may not be bound.
        """
        listening = _Port(self._tls, port, factory, backlog, interface, self._reactor)
        listening.startListening()
        return listening


def listen(
    reactor: Any, port: int, interface: str, accept: Accept, tls: ssl.SSLContext | None = None
) -> IListeningPort:
    """Listen on *port* of *interface* and give each connection to *accept*; see `ConnectionReactor`."""
    return ConnectionReactor(reactor, tls).listenTCP(port, ConnectionFactory(accept), interface=interface)
