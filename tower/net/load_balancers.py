"""Connections through load balancers, which send the client's address in a header.

The header (`tower.net.proxy_protocol`) precedes everything else, TLS included.  It is required from the
balancers' addresses and not read from others, so that no other client can claim an address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from twisted.internet.interfaces import IReactorTime, IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from tower.net.connection_slots import REMINDER, Slot
from tower.net.lingering_close import reset_on_close
from tower.net.proxy_protocol import HEADER_LIMIT, BadHeader, HeaderReader, Origin
from tower.reactor.interfaces import ISocketReactor

#: Longest wait for a balancer's header, s.
PATIENCE = 5.0

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"


def read_networks(text: str) -> tuple[Network, ...]:
    """Read a list such as ``10.0.0.0/8,fd00::/8``; an address is a network of one."""
    networks: list[Network] = []
    for part in text.split(","):
        word = part.strip()
        try:
            network = ipaddress.ip_network(word, strict=False)
        except ValueError:
            raise ValueError(
                f"contains {word!r}, which is not a network: give comma-separated addresses or CIDRs, "
                "such as 10.0.0.0/8,fd00::/8"
            ) from None
        address = ipaddress.ip_address(word.partition("/")[0])
        if "/" in word and address != network.network_address:
            raise ValueError(
                f"has {word!r}, whose address is within that network: give {network} or {address}"
            )
        networks.append(network)
    return tuple(networks)


class Balancers:
    """The load balancers, by their networks, and counters of their bad headers.

    :ivar failures: number of connections closed for lack of a valid header.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, networks: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._networks = tuple(networks)
        self._logged: float | None = None
        self._logged_failures = 0
        self._last = ("", "")
        self.failures = 0

    def include(self, host: str) -> bool:
        """Return whether the IP address *host* is a balancer's."""
        if not self._networks:
            return False
        address = ipaddress.ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)

    def failed(self, host: str, reason: str) -> None:
        """Count a connection from *host* that was closed for *reason*."""
        self.failures += 1
        self._last = host, reason

    def sweep(self) -> None:
        """Log failures, at most once per `REMINDER`; call this once a second."""
        if self.failures == self._logged_failures:
            return
        now = self._clock.seconds()
        if self._logged is not None and now - self._logged < REMINDER:
            return
        count = self.failures - self._logged_failures
        self._logged, self._logged_failures = now, self.failures
        host, reason = self._last
        self._log.warn(
            "{count} connections from load balancers (--proxy-protocol-from) closed for lack of a valid "
            "PROXY protocol header, the last from {host}: {reason}",
            count=count,
            host=host,
            reason=reason,
        )


@implementer(IReadDescriptor)
class Arrival:
    """A balancer's connection up to the last byte of its header.

    :param read: called after the header; then owns socket and slot.
    :param over: called instead if the connection is closed, with the reason, empty if it is not worth a log
        line.
    :ivar address: of the balancer.
    :ivar slot: of the connection; released if it is closed.
    :ivar origin: the client's address, if the balancer sent it.
    """

    __slots__ = (
        "_fd",
        "_over",
        "_reactor",
        "_read",
        "_reader",
        "_timer",
        "address",
        "origin",
        "slot",
        "socket",
    )

    def __init__(
        self,
        reactor: ISocketReactor,
        sock: socket.socket,
        address: tuple[Any, ...],
        slot: Slot,
        read: Callable[[Arrival], None],
        over: Callable[[Arrival, str], None],
    ) -> None:
        sock.settimeout(0)
        self._reactor = reactor
        self.socket = sock
        self._fd = sock.fileno()
        self.address = address
        self.slot = slot
        self.origin: Origin | None = None
        self._read = read
        self._over = over
        self._reader = HeaderReader()
        self._timer = reactor.callLater(PATIENCE, self._too_slow)
        slot.owner = self
        reactor.addReader(self)

    def fileno(self) -> int:
        """Return the descriptor, or -1 once closed or passed on."""
        return self._fd

    def logPrefix(self) -> str:
        """Return the name for the reactor's log lines."""
        return "connection of a load balancer"

    def doRead(self) -> None:
        """Receive the bytes of the header, and no more."""
        try:
            seen = self.socket.recv(HEADER_LIMIT, socket.MSG_PEEK)
            if not seen:
                self._end("")  # a TCP health check
                return
            self.socket.recv(self._reader.feed(seen))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end("")
            return
        except BadHeader as e:
            self._end(str(e))
            return
        if self._reader.done:
            self.origin = self._reader.origin
            self._leave()
            self._read(self)

    def _too_slow(self) -> None:
        self._end(f"no header within {PATIENCE:g} s")

    def abort(self) -> None:
        """Close now."""
        self._end("")

    def connectionLost(self, reason: Failure) -> None:
        """Close: the reactor lost the descriptor or is shutting down."""
        self._end("")

    def _end(self, why: str) -> None:
        if self._fd < 0:
            return
        self._leave()
        self.slot.release()
        reset_on_close(self.socket)
        self.socket.close()
        self._over(self, why)

    def _leave(self) -> None:
        """Leave the reactor."""
        self._reactor.removeReader(self)
        if self._timer.active():
            self._timer.cancel()
        self._fd = -1
