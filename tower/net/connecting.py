"""Outgoing connections: a plain non-blocking connect, with TLS if wanted, and reasons when it fails.

Twisted's ``HostnameEndpoint`` costs half a millisecond a connection, which is most of what a new stream
costs an agent; an address that needs no resolver goes straight to the kernel here.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver, IWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.errors import TowerError
from tower.net.addresses import is_host, join_address
from tower.net.connection import Connection
from tower.net.tls.connection import TLSConnection, TLSFailed
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.process import is_scarce

_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.ENETUNREACH: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.EMFILE: "busy",
    errno.ENFILE: "busy",
}


class ConnectFailed(TowerError):
    """No connection came about.

    :ivar kind: ``refused``, ``unreachable``, ``timeout``, ``name``, ``tls``, or ``busy`` when there are too
        many open files.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Unready:
    """The receiver of a connection whose TLS handshake is under way."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self.closed = failed

    def received(self, data: memoryview) -> None:
        """Never called: the connection is paused."""

    def ended(self) -> None:
        """Never called: the connection is paused."""

    def drained(self) -> None:
        """Nothing was sent."""


@implementer(IWriteDescriptor)
class _Attempt:
    """One way to a list of addresses, tried in order until one answers.

    :param addresses: (family, socket address) pairs.
    """

    def __init__(
        self,
        reactor: ISocketReactor,
        what: str,
        timeout: float,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> None:
        self._reactor = reactor
        self._what = what
        self._tls = tls
        self._server_hostname = server_hostname
        self._addresses: list[tuple[int, tuple[Any, ...]]] = []
        self._socket: socket.socket | None = None
        self._connection: Connection | None = None
        self._timer = reactor.callLater(timeout, self._too_late, timeout)
        self.done: Deferred[Connection] = Deferred(lambda _: self._abandon())

    def start(self, addresses: list[tuple[int, tuple[Any, ...]]]) -> None:
        """Try *addresses*, unless the answer came too late."""
        if self.done.called:
            return
        self._addresses = addresses
        self._next(ConnectFailed("name", f"{self._what} has no address"))

    def fail(self, error: Exception) -> None:
        """End in *error*."""
        self._abandon()
        if not self.done.called:
            self.done.errback(error)

    def _next(self, error: ConnectFailed) -> None:
        while self._addresses:
            family, address = self._addresses.pop(0)
            sock = None
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
                sock.settimeout(0)
                code = errno.EMFILE if is_scarce(sock.fileno()) else sock.connect_ex(address)
            except OSError as e:  # no descriptor is left, the family is unknown, there is no such scope
                code = max(e.errno or 0, 0) or errno.EADDRNOTAVAIL
            if sock is not None and code in (0, errno.EINPROGRESS):
                self._socket = sock
                self._reactor.addWriter(self)
                return
            if sock is not None:
                sock.close()
            error = self._failure(code)
        self.fail(error)

    def _failure(self, code: int) -> ConnectFailed:
        text = "connection refused" if code == errno.ECONNREFUSED else os.strerror(code).lower()
        return ConnectFailed(_KINDS.get(code, "unreachable"), f"{self._what}: {text}")

    def fileno(self) -> int:
        """Return the descriptor of the socket that is being connected."""
        return self._socket.fileno() if self._socket is not None else -1

    def logPrefix(self) -> str:
        """Name this in log lines that the reactor writes."""
        return "connecting"

    def doWrite(self) -> None:
        """See how the connect went."""
        sock = self._take_socket()
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            sock.close()
            self._next(self._failure(code))
        elif self._tls is None:
            self._succeed(Connection(self._reactor, sock))
        else:
            self._secure(sock, self._tls)

    def _take_socket(self) -> socket.socket | None:
        sock = self._socket
        if sock is not None:
            self._reactor.removeWriter(self)
            self._socket = None
        return sock

    def _secure(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            self._connection = connection = TLSConnection(
                self._reactor,
                sock,
                tls,
                server_side=False,
                server_hostname=self._server_hostname,
                handshake_timeout=3600,  # our own timer rules
                on_secure=self._secured,
            )
        except ValueError:
            sock.close()
            self.fail(ConnectFailed("tls", f"{self._what}: {self._server_hostname!r} is no server's name"))
        else:
            connection.receiver = _Unready(self._insecure)

    def _secured(self) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        self._succeed(connection)

    def _insecure(self, reason: Exception) -> None:
        self._connection = None
        text = str(reason) if isinstance(reason, TLSFailed) else "closed during the TLS handshake"
        self.fail(ConnectFailed("tls", f"{self._what}: {text}"))

    def _succeed(self, connection: Connection) -> None:
        self._timer.cancel()
        self.done.callback(connection)

    def connectionLost(self, reason: Failure) -> None:
        """Note that the reactor found the descriptor broken: ask the socket why.  Or it is shutting down."""
        sock = self._take_socket()
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        sock.close()
        if code:
            self._next(self._failure(code))
        else:
            self.fail(ConnectFailed("unreachable", f"{self._what}: gave up"))

    def _too_late(self, seconds: float) -> None:
        self.fail(ConnectFailed("timeout", f"{self._what}: no answer in {seconds:g} s"))

    def _abandon(self) -> None:
        if self._timer.active():
            self._timer.cancel()
        self._addresses = []
        sock = self._take_socket()
        if sock is not None:
            sock.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.receiver = _Unready(lambda _: None)
            connection.abort()


@implementer(IResolutionReceiver)
class _Addresses:
    """Collects what the resolver finds."""

    def __init__(self, attempt: _Attempt, what: str) -> None:
        self._attempt = attempt
        self._what = what
        self._found: list[tuple[int, tuple[Any, ...]]] = []

    def resolutionBegan(self, resolution: IHostResolution) -> None:
        """Nothing to note."""

    def addressResolved(self, address: IAddress) -> None:
        """Note one address."""
        self._found.append(_socket_address(address.host, address.port))  # type: ignore[attr-defined]

    def resolutionComplete(self) -> None:
        """Start with what was found."""
        if self._found:
            self._attempt.start(self._found)
        else:
            self._attempt.fail(ConnectFailed("name", f"{self._what}: the name has no address"))


def _socket_address(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    if isIPv6Address(host):
        return socket.AF_INET6, (host, port, 0, 0)
    return socket.AF_INET, (host, port)


def connect(
    reactor: ISocketReactor,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    timeout: float = 30.0,
) -> Deferred[Connection]:
    """Connect, TLS handshake included, within *timeout* s.

    The connection comes paused: give it its receiver, then resume it.  Cancelling leaves nothing behind.

    :raise ConnectFailed: through the Deferred, with the kind and a text that names *host* and *port*.
    """
    what = join_address(host, port)
    attempt = _Attempt(reactor, what, timeout, tls, server_hostname or host)
    if isIPAddress(host) or isIPv6Address(host):
        attempt.start([_socket_address(host, port)])
    elif is_host(host):
        reactor.nameResolver.resolveHostName(_Addresses(attempt, what), host, port)
    else:  # at which the resolver would stumble, and never answer
        attempt.fail(ConnectFailed("name", f"{what}: that is no name of a host"))
    return attempt.done
