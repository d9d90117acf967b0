"""Tunnels of agents: the acceptors of both protocols behind one endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from attrs import frozen

from tower.clusters.records import Records
from tower.net.budget import Budget
from tower.reactor.interfaces import IReactor
from tower.reactor.poller import Poller
from tower.rotation.assembly import ProxyKeys
from tower.tunnels import Tunnels
from tower.v1.acceptor import V1AgentAcceptor
from tower.v1.warnings import V1Warnings
from tower.v2.acceptor import AgentAcceptor
from tower.websocket.endpoint import AgentEndpoint, Opened
from tower.websocket.subprotocols import KUBESPHERE_V1, TOWER_V2


@frozen(eq=False)
class AgentTunnels:
    """The parts that agents connect to.

    :ivar tunnels: all live tunnels, also those to nodes.
    :ivar notices: warnings about KubeSphere Tower agents.
    """

    tunnels: Tunnels
    acceptor: AgentAcceptor
    endpoint: AgentEndpoint
    notices: V1Warnings

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        reactor: IReactor,
        sockets: Poller,
        tunnels: Tunnels,
        records: Records,
        keys: ProxyKeys,
        budget: Budget,
        epoch: Callable[[], float],
    ) -> Self:
        """Return the parts; *epoch* returns the time of day, s since the epoch."""
        keepalive = options["keepalive"]
        acceptor = AgentAcceptor(
            sockets,
            tunnels,
            records.tokens,
            keys.host_keys,
            budget,
            keepalive=keepalive,
            epoch=epoch,
            per_key=options["max-tunnels-per-key"],
            per_cluster=options["max-tunnels-per-cluster"],
            ca_hashes=lambda: keys.authority.hashes,
        )
        impersonates = not options["v1-no-impersonation"]
        opened: dict[bytes, Opened] = {TOWER_V2.encode(): acceptor.opened}
        if not options["require-v2"]:
            opened[KUBESPHERE_V1.encode()] = V1AgentAcceptor(
                sockets,
                acceptor,
                records.v1_tokens,
                keys.host_keys,
                keepalive=keepalive,
                epoch=epoch,
                allows_member_tokens=lambda name: _allows_member_tokens(records, name),
                impersonate=impersonates,
            ).opened
        notices = V1Warnings(
            records.clusters, tunnels, epoch, impersonate=impersonates, open_ports=options["v1-open-ports"]
        )
        return cls(tunnels, acceptor, AgentEndpoint(reactor, opened), notices)


def _allows_member_tokens(records: Records, name: str) -> bool:
    cluster = records.clusters.get(name)
    return cluster is not None and cluster.allows_member_tokens
