"""Addresses as HOST:PORT."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tower.errors import ConfigurationError

if TYPE_CHECKING:
    from twisted.internet.address import IPv4Address, IPv6Address

_BROADCAST = ipaddress.IPv4Address("255.255.255.255")
_TARGET_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^\[\]:/\s]+)):([0-9]{1,5})")


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Split `host:port`, `[v6]:port` or, with a *default_port*, `host`.

    :raise ConfigurationError: *text* is not an address; with the expected form.
    """
    match = _TARGET_ADDRESS.fullmatch(text)
    if match is None and default_port is not None:
        bare = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
        match = _TARGET_ADDRESS.fullmatch(f"{bare}:{default_port}")
    if match is None or not 0 < int(match.group(3)) < 65536:
        raise ConfigurationError(f"{text!r} is not host:port")
    return match.group(1) or match.group(2), int(match.group(3))


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around IPv6: the reverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(host: str) -> bool:
    """Return whether *host* can be an address or a name: no label is empty or longer than 63 bytes."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def is_wildcard(host: str) -> bool:
    """Return whether *host* means all addresses of this machine."""
    if host in ("", "*"):
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether *host* is an address of the machine that dials it, in any form, or ``localhost``."""
    name = host.removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _numeric(name)
    return address is not None and address.is_loopback


def is_unicast(host: str) -> bool:
    """Return whether *host* is an address of one machine for all others, or a name for DNS.

    Loopback, link-local, multicast, broadcast and unspecified addresses are not, as in kube-apiserver.
    """
    if is_loopback(host):
        return False
    address = _numeric(host)
    return address is None or not (
        address.is_link_local or address.is_unspecified or address.is_multicast or address == _BROADCAST
    )


def _numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that *host* is, also in an old form of IPv4 such as ``0x7f.1``; None: a name."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        pass
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return None
    return address.ipv4_mapped or address


def address_from(name: Callable[[], Any]) -> IPv4Address | IPv6Address:
    """Return the address that *name*, ``getpeername`` or ``getsockname`` of a socket, returns."""
    try:
        host, port = name()[:2]
    except (OSError, ValueError):  # closed, or of a family without ports
        host, port = "0.0.0.0", 0
    return tcp_address(host, port)


def tcp_address(host: str, port: int) -> IPv4Address | IPv6Address:
    """Return the TCP address of the IP address *host*."""
    from twisted.internet.address import IPv4Address, IPv6Address  # slow to import; not for commands

    return (IPv6Address if ":" in host else IPv4Address)("TCP", host, port)
