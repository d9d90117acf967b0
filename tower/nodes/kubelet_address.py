"""Where kubelets listen, as their own nodes and as others see them."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from tower.clusters.node import Node
from tower.errors import StreamRefused

#: Where a kubelet is as its own node sees it, unless it was given ``--address``.
LOOPBACK = "127.0.0.1"

#: At how many of a node's own addresses its kubelet is looked for.
_MOST_ADDRESSES = 3

#: Of how many nodes it is remembered that the loopback is not the place.
_REMEMBERED = 1000

#: What a node says at once of an address where nobody listens, or that its ``PermitOpen`` does not name.
_NOT_THERE = frozenset({"refused", "unreachable", "name", "not-allowed", "failed"})


class OneTunnel(Protocol):
    """What is needed of the tunnel to one node."""

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Return a channel to *host*, as that node reaches it."""


class KubeletAddresses:
    """Finds out where on its own node a kubelet listens, and remembers it.

    Most do so at all addresses, and so on the loopback; one with ``--address`` at its node's own alone.
    Nobody who asks for something has a say in what is dialled: it is what those say who list the nodes.
    """

    def __init__(self) -> None:
        self._found: dict[Node, str] = {}

    async def dial(self, tunnel: OneTunnel, node: Node, port: int) -> Any:
        """Return a channel to the kubelet of *node* by its own tunnel.

        :raise StreamRefused: it is nowhere; says what the node said of each address.
        :raise TunnelLost: there is no tunnel any more.
        """
        errors: list[StreamRefused] = []
        for address in dict.fromkeys((self._found.get(node, LOOPBACK), LOOPBACK, *internal_addresses(node))):
            try:
                channel = await tunnel.dial(address, port)
            except StreamRefused as e:
                if e.code not in _NOT_THERE:
                    raise
                errors.append(e)
            else:
                self._remember(node, address)
                return channel
        first = errors[0]
        raise StreamRefused(first.code, "; ".join(dict.fromkeys(map(str, errors))), first.reason)

    def _remember(self, node: Node, address: str) -> None:
        if address == LOOPBACK:
            self._found.pop(node, None)
            return
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        self._found[node] = address


def internal_addresses(node: Node) -> Sequence[str]:
    """Return where *node* is reached from within its cluster: private addresses first."""
    private = [address for address in sorted({node.host, *node.aliases}) if _is_private(address)]
    return [*dict.fromkeys((*private, node.host))][:_MOST_ADDRESSES]


def _is_private(address: str) -> bool:
    try:
        return ip_address(address).is_private
    except ValueError:
        return False
