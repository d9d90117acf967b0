"""One cluster that is reached by SSH to its nodes: its parts, put together and kept as its record says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters.cluster import Cluster
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node import Node, parse_node
from tower.clusters.node_status import SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ConfigurationError, TowerError
from tower.kube.client import APIClient
from tower.net.addresses import parse_address
from tower.net.budget import Budget
from tower.net.connecting import connect
from tower.nodes.apiserver import MemberAPIServer
from tower.nodes.cloud import NodeCloud
from tower.nodes.cluster_tunnel import SSHClusterTunnel
from tower.nodes.health import member_health
from tower.nodes.host_key_policy import HostKeyPolicy
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.kubelets import Kubelets
from tower.nodes.node_sources import Lister, api_nodes, cloud_nodes, fallback, file_nodes, fixed_nodes
from tower.nodes.plausibility import plausible
from tower.nodes.record_files import NodeFiles, RecordFile
from tower.nodes.remembered_nodes import RememberedNodes
from tower.nodes.ssh.client import CONNECT, KEEPALIVE_INTERVAL
from tower.nodes.tunneler import SSHTunneler, truncate_user
from tower.nodes.tunnels.interfaces import OpenCounters
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel
from tower.nodes.tunnels.tunnels import NodeTunnels
from tower.store import IStore
from tower.tunnels import Tunnels

_UNAUTHORIZED = 401


@frozen
class NodeServices:
    """What all these clusters share.

    :ivar sockets: a `tower.reactor.poller.Poller`.
    :ivar wheel: the clock of SSH connections.
    :ivar epoch: returns the time of day, s since the epoch.
    :ivar keepalive: how often peers are probed, s; nodes are no less often than they want by themselves.
    :ivar files: that records may name.
    """

    reactor: Any
    sockets: Any
    wheel: Any
    store: IStore
    tunnels: Tunnels
    accesses: MemberCredentials
    budget: Budget
    epoch: Callable[[], float]
    keepalive: float
    files: NodeFiles


class NodeCluster:
    """:param cluster: of type ssh.
    :ivar tunnels: to its nodes.
    :ivar tunneler: keeps them.
    :ivar kubelets: of its nodes; None while they are no target.
    :raise ConfigurationError: it cannot be put together now: the cloud's configuration is no good, mostly, or
        a file is not where it may be.
    """

    _log = Logger()

    def __init__(self, around: NodeServices, cluster: Cluster) -> None:
        assert cluster.ssh is not None
        self.cluster = cluster
        self.spec: SSHSpec = cluster.ssh
        self._around = around
        problem = "; ".join(around.files.problems(cluster.name, self.spec))
        if problem:
            raise ConfigurationError(problem)
        self._cloud = self._new_cloud()
        self._known = RememberedNodes(around.store, cluster.name, cluster.uid)
        key = self._placed("key_file")
        self._key = KeyPairFiles(key.path, self.spec.key_type, key.files)
        self.counters = OpenCounters()
        self.gate = MemberAPIServer(
            cluster.name,
            around.reactor,
            around.sockets,
            lambda: around.accesses.get(self.cluster),
            identities=lambda: self.spec.identities,
            why_not=f"to allow it, run 'tower cluster set {cluster.name} --allow-system-identity NAME'",
        )
        user = truncate_user(self.spec.user)
        self._vouching = HostKeyPolicy(self.spec, self._known, self._placed("known_hosts"))
        self._login = NodeLogin(user, self._key.private, self._vouching)
        self.tunnels = NodeTunnels(
            around.reactor,
            self._tunnel,
            user=user,
            health=member_health(self.gate, around.reactor),
            epoch=around.epoch,
            on_change=self._changed,
            counters=self.counters,
            name=cluster.name,
        )
        self.tunneler = SSHTunneler(
            around.reactor,
            user,
            self._key,
            self.tunnels,
            lister=self._list,
            install=self._cloud.install,
            epoch=around.epoch,
            name=cluster.name,
        )
        self._api = APIClient(around.reactor, lambda: self.gate.open(self.tunnels), self.gate.upstream)
        self._direct_api = APIClient(
            around.reactor, self.gate.open_directly, self.gate.upstream, persistent=False
        )
        self.way = SSHClusterTunnel(
            cluster.name, user, self.tunnels, self.gate, self._live, self._close_tunnels
        )
        self.kubelets: Kubelets | None = None
        self._is_there = False
        self._settle()

    # What the record says

    def _lister(self) -> Lister:
        spec, port, clock = self.spec, self.spec.ssh_port, self._around.reactor
        if spec.nodes:
            return fixed_nodes([parse_node(text, port) for text in spec.nodes])
        if spec.nodes_file:
            file = self._placed("nodes_file")
            return plausible(
                file_nodes(file.path, port, file.files),
                self._connected,
                self._try,
                clock,
                place=str(file.path),
            )
        if self._cloud.instances is not None:
            return cloud_nodes(self._cloud.instances, spec.address_types, port, clock=clock)
        through = api_nodes(self._api, spec.address_types, port, clock=clock)
        directly = api_nodes(self._direct_api, spec.address_types, port, clock=clock)
        return fallback(through, directly)

    def _settle(self) -> None:
        """Take up what the record says of the way to the API server and beside it."""
        self._nodes = self._lister()
        self.way.targets = {name: parse_address(address) for name, address in self.spec.targets.items()}
        self.renew_credential()

    def change(self, cluster: Cluster) -> bool:
        """Do as the record says now; return whether that could be done, for another cluster is begun anew.

        What is open stays open, whatever changes; only nodes that nobody vouched for, as `insecure-ignore`
        has it, are left if nobody does now, either.
        """
        if cluster.uid != self.cluster.uid or cluster.ssh is None:
            return False
        self.cluster = cluster
        if cluster.ssh != self.spec:
            before, self.spec = self.spec, cluster.ssh
            self._take_login(before)
            self._settle()
            if before.identities != self.spec.identities:
                self._warn_of_identities()
            self.tunneler.hurry()
        return True

    def _take_login(self, before: SSHSpec) -> None:
        """Log in as the record says from now on."""
        spec = self.spec
        if (spec.key_file, spec.key_type) != (before.key_file, before.key_type):
            self._take_key()
        if spec.user != before.user:
            self.tunnels.user = user = truncate_user(spec.user)
            self._login = evolve(self._login, user=user)
            self.way.peer = self.way.named(user)
            self.tunneler.turn_to(user, self._cloud.install)
        if (spec.host_keys, spec.known_hosts) != (before.host_keys, before.known_hosts):
            self._leave_nodes(self._vouching.turn_to(spec, self._connected(), self._placed("known_hosts")))

    def _take_key(self) -> None:
        key = self._placed("key_file")
        self._key.turn_to(key.path, self.spec.key_type, key.files)
        try:
            self._key.ensure()
        except ConfigurationError as e:
            # each node says so, too, as soon as it is dialled
            self._log.error("{cluster}: {problem}", cluster=self.cluster.name, problem=str(e))

    def _leave_nodes(self, left: Collection[Node]) -> None:
        """Have new tunnels to these nodes, and to those that are just being opened."""
        nodes, kept = self.tunnels.nodes, [node for node in self._connected() if node not in left]
        if len(kept) < len(nodes):
            self.tunnels.update(kept)
            self.tunnels.update(nodes)

    def _take_cloud(self) -> None:
        """Have the cloud that the record says.

        :raise ConfigurationError: that cannot be made; the one before stays until it can.
        """
        if not self._cloud.is_meant_by(self.spec):
            before, self._cloud = self._cloud, self._new_cloud()
            self.tunneler.turn_to(self.tunneler.user, self._cloud.install)
            self._nodes = self._lister()
            before.stop()

    async def try_credential(self) -> None:
        """Find out whether the API server knows the member's credential; see `MemberAPIServer.is_refused`."""
        if not self.tunnels.is_up:
            return
        try:
            answer = await self._api.request("GET", "/version")
        except TowerError:
            return  # what is wrong then is not that
        self.gate.is_refused = answer.code == _UNAUTHORIZED

    def renew_credential(self) -> None:
        """Take the member's credential as it is kept now."""
        self.gate.renew()
        self._api.close()
        if self.kubelets is not None:
            self.kubelets.draining = True
        self.kubelets = self.way.kubelets = self._kubelets()
        self.tunnels.check()  # what was wrong with the credential before is so no more

    def _kubelets(self) -> Kubelets | None:
        if not self.spec.kubelet_port:
            return None
        return Kubelets(
            self._around.reactor,
            self.cluster.name,
            self.spec,
            self.tunnels,
            self._api,
            self.gate,
            self._placed("kubelet_authority"),
        )

    def _new_cloud(self) -> NodeCloud:
        """Return the cloud that the record says.

        :raise ConfigurationError: that cannot be made.
        """
        return NodeCloud(self._around.reactor, self.spec, self._placed("cloud_config"))

    def _placed(self, attribute: str) -> RecordFile:
        return self._around.files.placed(self.cluster.name, attribute, self.spec)

    # Life

    def start(self) -> None:
        """Begin to keep tunnels: where others list the nodes, to those of their last list at first."""
        self._around.tunnels.explain(self.cluster.name, self._why_not)
        self._warn_of_identities()
        if not self.spec.nodes and not self.spec.nodes_file:
            self.tunnels.update(self._known.last())
        self.tunneler.startService()

    def _warn_of_identities(self) -> None:
        """Say whom of the system users may act as."""
        identities, name = self.spec.identities, self.cluster.name
        if identities.allow_all:
            self._log.warn(
                "cluster {cluster}: allowSystemIdentities is insecure: users may act as any system identity",
                cluster=name,
            )
        elif identities.allowed:
            self._log.warn(
                "cluster {cluster}: users may act as {names} (allowedSystemIdentities)",
                cluster=name,
                names=", ".join(sorted(identities.allowed)),
            )

    def stop(self, reason: str) -> Deferred[None]:
        """Close everything; fires when that is done."""
        self._around.tunnels.explain(self.cluster.name, None)
        return Deferred.fromCoroutine(self._stop(reason))

    async def _stop(self, reason: str) -> None:
        self._log.info(
            "{cluster}: its tunnels are closed: {reason}", cluster=self.cluster.name, reason=reason
        )
        self._leave()
        await self.tunneler.stopService()
        await self.tunnels.close()
        self._api.close()
        self._cloud.stop()

    def status(self) -> SSHStatus:
        """Return what is known now."""
        status = self.tunneler.status()
        return evolve(status, last_error=self.gate.problem) if self.gate.problem else status

    def _why_not(self) -> str:
        return str(self.tunnels.absence)

    # What the parts ask for

    async def _list(self) -> Sequence[Node]:
        self._take_cloud()
        nodes = await self._nodes()
        self._known.remember(nodes)
        self._vouching.keep([*nodes, *self.tunnels.nodes])
        return nodes

    def _tunnel(self, node: Node) -> NodeTunnel:
        return NodeTunnel(
            self._around.sockets,
            self._around.wheel,
            node,
            self._login,
            self._around.budget,
            epoch=self._around.epoch,
            keepalive=min(self._around.keepalive, KEEPALIVE_INTERVAL),
            dial=self._dial,
        )

    def _connected(self) -> list[Node]:
        return [node for node in self.tunnels.nodes if self.tunnels.at(node) is not None]

    async def _try(self, node: Node) -> None:
        """See whether *node* lets us in."""
        tunnel = self._tunnel(node)
        await tunnel.open()
        tunnel.close("it was only tried")

    async def _connect(self, host: str, port: int) -> Any:
        await self._cloud.prepare_dial(self.tunneler.user, self._key.public_line(), host)
        return await connect(self._around.sockets, host, port, timeout=CONNECT)

    def _dial(self, host: str, port: int) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(host, port))

    def _live(self) -> tuple[int, float]:
        states = self.tunnels.states()
        near = [state.round_trip for state in states if state.round_trip]
        return sum(state.streams for state in states), min(near, default=0.0)

    def _close_tunnels(self, _reason: str) -> None:
        self.tunnels.close()

    def _changed(self) -> None:
        """Have the way there exactly while a tunnel is up, and tell whether it leads anywhere."""
        if self.tunnels.is_up and not self._is_there:
            self._is_there = True
            self.way.since = self._around.epoch()
            self._around.tunnels.add(self.way)
            self.tunneler.hurry()  # the API server can be asked from now on
            self.tunnels.check()  # so that one that nobody reaches is noticed before a minute is over
        elif not self.tunnels.is_up:
            self._leave()
        self._around.tunnels.note(self.cluster.name, self.tunnels.trouble)

    def _leave(self) -> None:
        if self._is_there:
            self._is_there = False
            self._around.tunnels.remove(self.way)
