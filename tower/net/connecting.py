"""Outgoing connections: non-blocking connect, optional TLS, and the kind of a failure.

Twisted's ``HostnameEndpoint`` takes half a millisecond per connection, most of the time of a new stream on an
agent; here an IP address goes straight to the kernel.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver, IWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.errors import TowerError
from tower.net.addresses import is_host, join_address
from tower.net.connection import Connection
from tower.net.tls.connection import TLSConnection, TLSFailed, start_tls
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
    """A connection could not be established.

    :ivar kind: ``refused``, ``unreachable``, ``timeout``, ``name``, ``tls``, or ``busy`` (too many files).
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@implementer(IWriteDescriptor)
class _Attempt:
    """A connection attempt to a list of addresses, in order, until one answers."""

    def __init__(
        self,
        reactor: ISocketReactor,
        what: str,
        timeout: float,
        tls: ssl.SSLContext | None,
        server_hostname: str,
    ) -> None:
        self._reactor = reactor
        self._what = what
        self._tls = tls
        self._server_hostname = server_hostname
        self._addresses: list[tuple[int, tuple[Any, ...]]] = []
        self._socket: socket.socket | None = None
        self._securing: Deferred[TLSConnection] | None = None
        self._timer = reactor.callLater(timeout, self._too_late, timeout)
        self.done: Deferred[Connection] = Deferred(lambda _: self._abandon())

    def start(self, addresses: list[tuple[int, tuple[Any, ...]]]) -> None:
        """Try *addresses*, pairs of family and socket address, unless the attempt is over."""
        if self.done.called:
            return
        self._addresses = addresses
        self._next(ConnectFailed("name", f"{self._what} has no address"))

    def fail(self, error: Exception) -> None:
        """Fail with *error*."""
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
            except OSError as e:  # no free descriptor, unknown family or unknown scope
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
        """Return the descriptor of the socket under connection."""
        return self._socket.fileno() if self._socket is not None else -1

    def logPrefix(self) -> str:
        """Return the name for the reactor's log lines."""
        return "connecting"

    def doRead(self) -> None:
        """Ignore an event of an earlier descriptor with this number, which the reactor had collected."""

    def doWrite(self) -> None:
        """Finish the connect of one address."""
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
        host = self._server_hostname
        try:
            # the attempt has its own timer
            self._securing = start_tls(self._reactor, sock, tls, host, handshake_timeout=3600)
        except ValueError:
            sock.close()
            self.fail(ConnectFailed("tls", f"{self._what}: {host!r} is not a valid server name"))
        else:
            self._securing.addCallbacks(self._secured, self._insecure)

    def _secured(self, connection: TLSConnection) -> None:
        self._securing = None
        self._succeed(connection)

    def _insecure(self, failure: Failure) -> None:
        if self._securing is not None:
            self._securing = None
            text = str(failure.value) if failure.check(TLSFailed) else "closed during the TLS handshake"
            self.fail(ConnectFailed("tls", f"{self._what}: {text}"))

    def _succeed(self, connection: Connection) -> None:
        self._timer.cancel()
        self.done.callback(connection)

    def connectionLost(self, reason: Failure) -> None:
        """Fail: the reactor lost the descriptor, for the socket's error, or is shutting down."""
        sock = self._take_socket()
        if sock is None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        sock.close()
        if code:
            self._next(self._failure(code))
        else:
            self.fail(ConnectFailed("unreachable", f"{self._what}: the reactor closed the socket"))

    def _too_late(self, seconds: float) -> None:
        self.fail(ConnectFailed("timeout", f"{self._what}: no answer within {seconds:g} s"))

    def _abandon(self) -> None:
        if self._timer.active():
            self._timer.cancel()
        self._addresses = []
        sock = self._take_socket()
        if sock is not None:
            sock.close()
        securing, self._securing = self._securing, None
        if securing is not None:
            securing.cancel()


@implementer(IResolutionReceiver)
class _Addresses:
    """Collects the resolver's addresses."""

    def __init__(self, attempt: _Attempt, what: str) -> None:
        self._attempt = attempt
        self._what = what
        self._found: list[tuple[int, tuple[Any, ...]]] = []

    def resolutionBegan(self, resolution: IHostResolution) -> None:
        """See IResolutionReceiver."""

    def addressResolved(self, address: IAddress) -> None:
        """Add an address."""
        self._found.append(_socket_address(address.host, address.port))  # type: ignore[attr-defined]

    def resolutionComplete(self) -> None:
        """Start with the addresses."""
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

    The connection is paused: set its receiver, then resume it.  Cancelling leaves nothing behind.

    :raise ConnectFailed: through the Deferred; its text has *host* and *port*.
    """
    what = join_address(host, port)
    attempt = _Attempt(reactor, what, timeout, tls, server_hostname or host)
    if isIPAddress(host) or isIPv6Address(host):
        attempt.start([_socket_address(host, port)])
    elif is_host(host):
        reactor.nameResolver.resolveHostName(_Addresses(attempt, what), host, port)
    else:  # the resolver would raise, and never answer
        attempt.fail(ConnectFailed("name", f"{what}: invalid host name"))
    return attempt.done
