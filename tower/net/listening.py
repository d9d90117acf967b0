"""Ports whose connections are `tower.net.connection.Connection` from the first byte.

`ConnectionReactor` has only ``listenTCP``, so that Twisted's ``TCPServer`` service and all other code that
uses a reactor's ``listenTCP`` works with it unchanged.

If no descriptor is free, Twisted's port accepts and closes each new connection, and logs it three times.
Ours aborts the oldest unproven connection (`tower.net.connection_slots`).  If there is none, or there are no
slots, new connections wait in the kernel's backlog; the port tries again periodically and logs once.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from attrs import define, frozen
from twisted.internet import tcp
from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.net.connection import Connection
from tower.net.connection_slots import REMINDER, Slot, Slots, source_of
from tower.net.lingering_close import reset_on_close
from tower.net.load_balancers import Arrival, Balancers
from tower.net.pipes import Receiver
from tower.net.proxy_protocol import Origin
from tower.net.tls.connection import TLSConnection
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.process import are_scarce, is_scarce

#: Connections accepted per iteration of the reactor.
AT_ONCE = 64

#: Pause in accepting when no descriptor is free, s.
PAUSE = 0.25

#: Errors of `accept` without free descriptors.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

#: The TLS of a port: none, a context, or a function that returns the context for a new connection.
ServerTLS: TypeAlias = ssl.SSLContext | Callable[[], ssl.SSLContext] | None

#: Called with each new connection; returns its receiver, or None to abort it.
Accept = Callable[[Connection], Receiver | None]


@define(eq=False, repr=False)
class _Accepted:
    """Fake protocol for Twisted's port: passes the connection to *accept*."""

    _accept: Accept

    def makeConnection(self, connection: Connection) -> None:
        """Set the connection's receiver and resume it."""
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
        """See IProtocolFactory."""
        return _Accepted(self._accept)


@frozen
class Admission:
    """Connection slots and load balancers, shared by all ports of a program."""

    slots: Slots
    balancers: Balancers

    def sweep(self) -> None:
        """Log events of slots and balancers; call this once a second."""
        self.slots.sweep()
        self.balancers.sweep()


class Port(tcp.Port):
    """Twisted's port with another `doRead`; see the module's docstring."""

    _log = Logger()

    def __init__(self, tls: ServerTLS, admission: Admission | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tls = tls
        self._admission = admission
        self._arrivals: set[Arrival] = set()
        self._sockets = cast(ISocketReactor, self.reactor)
        self._again: IDelayedCall | None = None
        self._logged: float | None = None
        self._exhausted = False

    def doRead(self) -> None:
        """Accept waiting connections."""
        for _ in range(AT_ONCE):
            try:
                sock, address = self.socket.accept()
            except BlockingIOError:
                self._accepted_all()
                return
            except OSError as e:
                if e.errno in _EXHAUSTED and not self._make_room():
                    self._pause(os.strerror(e.errno))
                    return
                continue  # the connection was closed before
            scarce = is_scarce(sock.fileno()) and not self._make_room()
            self._take(sock, address)
            if scarce:
                self._pause(os.strerror(errno.EMFILE))
                return

    def _make_room(self) -> bool:
        """Abort two unproven connections for one new, to free descriptors."""
        if self._admission is None:
            return False
        slots = self._admission.slots
        return any([slots.evict(), slots.evict()])

    def _take(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        admission = self._admission
        if admission is None:
            self._connect(sock, address, None)
            return
        host = address[0]
        by_balancer = admission.balancers.include(host)
        slot = admission.slots.take(None if by_balancer else source_of(host))
        if slot is None:
            reset_on_close(sock)
            sock.close()
        elif by_balancer:
            self._arrivals.add(Arrival(self._sockets, sock, address, slot, self._arrived, self._not_arrived))
        else:
            self._connect(sock, address, slot)

    def _arrived(self, arrival: Arrival) -> None:
        """Connect after a load balancer's header."""
        self._arrivals.discard(arrival)
        if arrival.origin is not None:
            arrival.slot.count_for(source_of(arrival.origin.host))
        self._connect(arrival.socket, arrival.address, arrival.slot, arrival.origin)

    def _not_arrived(self, arrival: Arrival, reason: str) -> None:
        self._arrivals.discard(arrival)
        if reason and self._admission is not None:
            self._admission.balancers.failed(arrival.address[0], reason)

    def _connect(
        self, sock: socket.socket, address: tuple[Any, ...], slot: Slot | None, origin: Origin | None = None
    ) -> None:
        factory: Any = self.factory
        try:
            accepted = factory.buildProtocol(self._buildAddr(address[:2]))  # type: ignore[no-untyped-call]
            tls = self._tls() if callable(self._tls) else self._tls
            if tls is None:
                connection = Connection(self._sockets, sock)
            else:
                connection = TLSConnection(self._sockets, sock, tls)
        except OSError:
            sock.close()  # reset before it was accepted
            if slot is not None:
                slot.release()
            return
        if slot is not None:
            connection.slot, slot.owner = slot, connection
        if origin is not None:
            connection.set_peer(origin.host, origin.port)
        try:
            accepted.makeConnection(connection)
        except Exception:  # noqa: BLE001 - the port must go on
            self._log.failure("error in accepting a connection from {address}", address=address[0])
            connection.abort()

    def _pause(self, reason: str) -> None:
        """Stop accepting for `PAUSE` seconds."""
        self.stopReading()  # type: ignore[no-untyped-call]
        self._again = self._sockets.callLater(PAUSE, self._resume)
        now = self._sockets.seconds()
        if self._logged is None or now - self._logged >= REMINDER:
            self._logged = now
            self._exhausted = True
            self._log.warn(
                "port {port} accepts no connections for now, they wait: {reason}",
                port=self._realPortNumber,
                reason=reason.lower(),
            )

    def _resume(self) -> None:
        unproven = 0 if self._admission is None else self._admission.slots.unproven
        if not unproven and are_scarce(self.socket.fileno()):
            self._again = self._sockets.callLater(PAUSE, self._resume)
            return
        self._again = None
        self.startReading()  # type: ignore[no-untyped-call]

    def _accepted_all(self) -> None:
        if self._exhausted:
            self._exhausted = False
            self._log.info("port {port} accepts connections again", port=self._realPortNumber)

    def connectionLost(self, reason: Failure) -> None:
        """See IFileDescriptor."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        for arrival in list(self._arrivals):
            arrival.abort()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


@define(eq=False, repr=False)
class ConnectionReactor:
    """A reactor with ``listenTCP`` only; without *tls* its ports are plain, without *admission* unlimited."""

    _reactor: ISocketReactor
    _tls: ServerTLS = None
    _admission: Admission | None = None

    def listenTCP(
        self, port: int, factory: Factory, backlog: int = 1024, interface: str = ""
    ) -> IListeningPort:
        """Listen; connections are `Connection` objects.

        :raise twisted.internet.error.CannotListenError: the port is in use, or binding is not permitted.
        """
        listening = Port(self._tls, self._admission, port, factory, backlog, interface, self._reactor)
        listening.startListening()
        return listening


def listen(
    reactor: ISocketReactor, port: int, interface: str, accept: Accept, tls: ssl.SSLContext | None = None
) -> IListeningPort:
    """Listen on *port* of *interface* and pass each connection to *accept*; see `ConnectionReactor`."""
    return ConnectionReactor(reactor, tls).listenTCP(port, ConnectionFactory(accept), interface=interface)
