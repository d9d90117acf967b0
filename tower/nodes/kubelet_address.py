"""Addresses of kubelets, as their own nodes and as other nodes see them."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from tower.clusters.node import Node
from tower.conch.connection.channel import Channel
from tower.errors import StreamRefused
from tower.net.addresses import is_loopback, is_unicast
from tower.nodes.tunnels.tunnel import NodeTunnel

#: A kubelet's address as its own node sees it, unless the kubelet has ``--address``.
LOOPBACK = "127.0.0.1"

#: Most addresses of a node that are tried.
_MOST_ADDRESSES = 3

#: Most nodes whose kubelet's address is cached; only addresses other than the loopback are.
_CACHED = 1000

#: A node's codes for an address where nothing listens, or that its ``PermitOpen`` does not list.
_NOT_THERE = frozenset({"refused", "unreachable", "name", "not-allowed", "failed"})


class KubeletAddresses:
    """Finds the address at which a kubelet listens on its own node, and caches it.

    Most kubelets listen on all addresses, including the loopback; one with ``--address`` only on that of its
    node.  The other addresses come from the list of nodes alone, see `internal_addresses`; users have no
    influence on them.
    """

    def __init__(self) -> None:
        self._found: dict[Node, str] = {}

    async def dial(self, tunnel: NodeTunnel, node: Node, port: int) -> Channel:
        """Return a channel to the kubelet of *node* through its own tunnel.

        :raise StreamRefused: no address answers; with the node's error for each.
        :raise TunnelLost: the tunnel is closed.
        """
        errors: list[StreamRefused] = []
        listed = internal_addresses(node, is_own=True)
        for address in dict.fromkeys((self._found.get(node, LOOPBACK), LOOPBACK, *listed)):
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
        if len(self._found) >= _CACHED:
            self._found.clear()
        self._found[node] = address


def internal_addresses(node: Node, *, is_own: bool = False) -> Sequence[str]:
    """Return the addresses of *node* within its cluster, private ones first.

    Addresses at which another service would answer are left out (CVE-2020-8562): link-local ones are those of
    metadata services, for example.

    :param is_own: whether the node itself dials them; if not, loopback addresses are left out too.
    """
    private = [address for address in sorted({node.host, *node.aliases}) if _is_private(address)]
    allowed = [
        address
        for address in dict.fromkeys((*private, node.host))
        if is_unicast(address) or (is_own and is_loopback(address))
    ]
    return allowed[:_MOST_ADDRESSES]


def _is_private(address: str) -> bool:
    try:
        return ip_address(address).is_private
    except ValueError:
        return False
