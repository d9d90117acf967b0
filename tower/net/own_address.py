"""The address of this machine that other machines probably reach: that of its default route."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import ip_address

# Addresses of other machines (RFC 5737, RFC 3849), by family; nothing is sent there.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def default_address(host: str, find: Callable[[int], str] | None = None) -> str | None:
    """Return the address from which this machine sends to others; None: it has no route to any.

    :param host: listening address, whose family is preferred.
    :param find: returns the address of a family; raises `OSError`.
    """
    families = [socket.AF_INET, socket.AF_INET6]
    for family in reversed(families) if ":" in host else families:
        try:
            address = ip_address((find or _source)(family))
        except (OSError, ValueError):
            continue
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            return str(address)
    return None


def _source(family: int) -> str:
    """Return the address that the routes choose; a datagram socket connects without a packet."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_ELSEWHERE[socket.AddressFamily(family)], 9))
        address: str = probe.getsockname()[0]
        return address
