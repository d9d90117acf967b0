"""One cluster that is reached by SSH to its nodes: creates its parts, and applies changes of its record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.cloud.registry import init_cloud_provider
from tower.clusters.cluster import Cluster
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node import Node, parse_node
from tower.clusters.node_status import SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ConfigurationError
from tower.kube.client import APIClient
from tower.kube.member_check import CHECK_LIMIT, MemberChecker
from tower.kube.member_cures import proxy_texts
from tower.kube.member_status import Check, MemberStatus
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
from tower.nodes.tunneler import create_tunneler, truncate_user
from tower.nodes.tunnels.tunnel import NodeLogin
from tower.reactor.interfaces import IReactor
from tower.reactor.poller import Poller
from tower.reactor.timers import Clock
from tower.store import IStore
from tower.tunnels import Tunnels
from tower.tunnels.apiserver_gate import APIServerGate


class NodeCluster:
    """Created for each enabled cluster of type ssh.

    :param poller: for the connections to nodes.
    :param clock: for timeouts and keepalives of SSH connections.
    :param epoch: returns the time of day, s since the epoch.
    :param keepalive: longest interval between probes of a node, s.
    :param files: finds the files that the record names.
    :ivar apiserver: the API server, with the credential kept for it.
    :ivar cluster_tunnel: what the registry of tunnels gets while a node's tunnel is open.
    :ivar kubelets: of the nodes; None while kubelets are turned off.
    :raise ConfigurationError: the cluster cannot be set up now, mostly because of the cloud's configuration
        or a file in the wrong directory.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        *,
        reactor: IReactor,
        poller: Poller,
        clock: Clock,
        store: IStore,
        tunnels: Tunnels,
        credentials: MemberCredentials,
        budget: Budget,
        epoch: Callable[[], float],
        keepalive: float,
        files: NodeFiles,
    ) -> None:
        assert cluster.ssh is not None
        self.cluster = cluster
        self.spec: SSHSpec = cluster.ssh
        self._reactor = reactor
        self._registry = tunnels
        self._epoch = epoch
        self._files = files
        problem = "; ".join(files.problems(cluster.name, self.spec))
        if problem:
            raise ConfigurationError(problem)
        self._cloud_settings = (self.spec.cloud_provider, self.spec.cloud_config)
        self.cloud = self._new_cloud()
        self.remembered = RememberedNodes(store, cluster.name, cluster.uid)
        key = self._file("key_file")
        self.key = KeyPairFiles(key.path, self.spec.key_type, key.files)
        self.apiserver = MemberAPIServer(
            reactor,
            poller,
            lambda: credentials.get(self.cluster),
            identities=lambda: self.spec.identities,
            why_not=f"to allow it, run 'tower cluster set {cluster.name} --allow-system-identity NAME'",
        )
        self.host_keys = HostKeyPolicy(self.spec, self.remembered, self._file("known_hosts"))
        self.login = NodeLogin(truncate_user(self.spec.user), self.key.private, self.host_keys)
        self.tunneler = create_tunneler(
            poller,
            partial(connect, poller, timeout=CONNECT),
            self.login.user,
            lambda: self.login,
            self.key,
            lambda: self.cloud,
            self._list,
            clock=clock,
            budget=budget,
            health=member_health(self.apiserver, reactor),
            epoch=epoch,
            keepalive=min(keepalive, KEEPALIVE_INTERVAL),
            timers=reactor,
            name=cluster.name,
            on_change=self.tunnels_changed,
            counters=tunnels.counters.of(cluster.name),
        )
        self.tunnels = self.tunneler.tunnels
        self._api = APIClient(reactor, lambda: self.apiserver.open(self.tunnels), self.apiserver.upstream)
        self._direct_api = APIClient(
            reactor, self.apiserver.open_directly, self.apiserver.upstream, persistent=False
        )
        self._check_api = APIClient(
            reactor,
            lambda: self.apiserver.open(self.tunnels, APIServerGate.verify),
            self.apiserver.upstream,
            limit=CHECK_LIMIT,
        )
        self._checker = MemberChecker(
            reactor,
            self._check_api,
            lambda: str(self.apiserver.server, "ascii"),
            lambda: self.apiserver.facts,
            proxy_texts(cluster.name),
            epoch=epoch,
            unverified=APIClient(
                reactor,
                lambda: self.apiserver.open(self.tunnels, APIServerGate.secure_unverified),
                lambda: self.apiserver.upstream().without_credential(),
                limit=CHECK_LIMIT,
            ),
        )
        self.cluster_tunnel = SSHClusterTunnel(cluster.name, self.login.user, self.tunnels, self.apiserver)
        self.cluster_tunnel.check_member = self._check_member
        self.kubelets: Kubelets | None = None
        self._is_registered = False
        self._apply()

    # The record

    def _file(self, attribute: str) -> RecordFile:
        return self._files.find(self.cluster.name, attribute, self.spec)

    def _lister(self) -> Lister:
        spec, port, clock = self.spec, self.spec.ssh_port, self._reactor
        if spec.nodes:
            return fixed_nodes([parse_node(text, port) for text in spec.nodes])
        if spec.nodes_file:
            file = self._file("nodes_file")
            return plausible(
                file_nodes(file.path, port, file.files),
                self._connected,
                self._try,
                clock,
                source=str(file.path),
            )
        through = api_nodes(self._api, spec.address_types, port, clock=clock)
        directly = api_nodes(self._direct_api, spec.address_types, port, clock=clock)
        from_api = fallback(through, directly)
        if self.cloud.instances is None:
            return from_api
        from_cloud = cloud_nodes(self.cloud.instances, spec.address_types, port, clock=clock)
        if not spec.nodes_from_api:
            return from_cloud
        first = fallback(from_api, from_cloud)

        async def listing() -> Sequence[Node]:
            """List with the API; if it fails while no tunnel is open, with the cloud."""
            return await (from_api if self.tunnels.is_up else first)()

        return listing

    def _apply(self) -> None:
        """Apply the parts of the record that are replaced as a whole."""
        self._nodes = self._lister()
        self.cluster_tunnel.targets = {
            name: parse_address(address) for name, address in self.spec.targets.items()
        }
        self.renew_credential()

    def change(self, cluster: Cluster) -> bool:
        """Apply a changed record; return False if it is another cluster's, which needs a new `NodeCluster`.

        Open streams are not affected, except those of nodes that `insecure-ignore` accepted and the new
        policy rejects.
        """
        if cluster.uid != self.cluster.uid or cluster.ssh is None:
            return False
        self.cluster = cluster
        if cluster.ssh != self.spec:
            before, self.spec = self.spec, cluster.ssh
            self._change_login(before)
            self._apply()
            if before.identities != self.spec.identities:
                self._warn_of_identities()
            self.tunneler.list_soon()
        return True

    def _change_login(self, before: SSHSpec) -> None:
        """Use the record's key, user and host key policy from the next login."""
        spec = self.spec
        if (spec.key_file, spec.key_type) != (before.key_file, before.key_type):
            self._change_key()
        if spec.user != before.user:
            self.tunnels.user = user = truncate_user(spec.user)
            self.login = evolve(self.login, user=user)
            self.cluster_tunnel.use_login(user)
            self.tunneler.switch(user, self.cloud.install)
        if (spec.host_keys, spec.known_hosts) != (before.host_keys, before.known_hosts):
            self._reconnect(self.host_keys.switch(spec, self._connected(), self._file("known_hosts")))

    def _change_key(self) -> None:
        key = self._file("key_file")
        self.key.switch(key.path, self.spec.key_type, key.files)
        try:
            self.key.ensure()
        except ConfigurationError as e:
            # each node reports it too, as soon as it is dialed
            self._log.error("{cluster}: {problem}", cluster=self.cluster.name, problem=str(e))

    def _reconnect(self, rejected: Collection[Node]) -> None:
        """Open new tunnels to *rejected* nodes, and to those that are being connected."""
        nodes, kept = self.tunnels.nodes, [node for node in self._connected() if node not in rejected]
        if len(kept) < len(nodes):
            self.tunnels.update(kept)
            self.tunnels.update(nodes)

    # The cloud

    def _new_cloud(self) -> NodeCloud:
        """Return the record's cloud; raise `ConfigurationError` if it cannot be created."""
        name, config = self.spec.cloud_provider, self.spec.cloud_config
        file = self._file("cloud_config")
        path = str(file.path) if config else ""
        return NodeCloud(self._reactor, init_cloud_provider(name, path, file.files) if name else None)

    def _change_cloud(self) -> None:
        """Switch to the record's cloud.

        :raise ConfigurationError: it cannot be created; the previous one stays until it can.
        """
        settings = (self.spec.cloud_provider, self.spec.cloud_config)
        if settings != self._cloud_settings:
            before, self.cloud, self._cloud_settings = self.cloud, self._new_cloud(), settings
            self.tunneler.switch(self.tunneler.user, self.cloud.install)
            self._nodes = self._lister()
            before.stop()

    # The credential

    async def _check_member(self) -> MemberStatus:
        """Check the API server through any node, and the nodes' tunnels again if the result differs."""
        unusable = self._unusable()
        if unusable is not None:
            return unusable
        before, status = self.cluster_tunnel.member_status, await self._checker.check()
        was_reachable = before is None or before.api_server.status != "False"
        if status.api_server.status == "True" and self.tunnels.trouble:
            self.tunnels.recheck()
        elif status.api_server.status == "False" and was_reachable:
            self.tunnels.check()
        return status

    def _unusable(self) -> MemberStatus | None:
        """Return the status while the credential cannot be used; None if it can."""
        problem = self.apiserver.problem
        return MemberStatus(credential=Check("False", "CredentialUnusable", problem)) if problem else None

    def renew_credential(self) -> None:
        """Read the credential again."""
        self.apiserver.renew()
        self._api.close()
        if self.kubelets is not None:
            self.kubelets.draining = True
        self.kubelets = self.cluster_tunnel.kubelets = self._new_kubelets()
        self.tunnels.check()  # a problem that the old credential caused may be over
        self._registry.report(self.cluster.name, self._unusable())
        self._forget_status()

    def _forget_status(self) -> None:
        """Forget the state of the API server, which is then checked at once."""
        self.cluster_tunnel.member_status = None
        self.cluster_tunnel.on_change()

    def _new_kubelets(self) -> Kubelets | None:
        if not self.spec.kubelet_port:
            return None
        return Kubelets(
            self._reactor,
            self.cluster.name,
            self.spec,
            self.tunnels,
            self._api,
            self.apiserver,
            self._file("kubelet_authority"),
        )

    # Start and stop

    def start(self) -> None:
        """Start the tunneler; if the list is not in the record or a file, with the last known nodes."""
        self._registry.explain(self.cluster.name, lambda: str(self.tunnels.absence))
        self._warn_of_identities()
        if not self.spec.nodes and not self.spec.nodes_file:
            self.tunnels.update(self.remembered.last())
        self.tunneler.startService()

    def _warn_of_identities(self) -> None:
        """Log which system identities users may act as."""
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
        self._registry.explain(self.cluster.name, None)
        self._registry.report(self.cluster.name, None)
        self._log.info(
            "cluster {cluster}: closing its tunnels: {reason}", cluster=self.cluster.name, reason=reason
        )
        self._unregister()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.tunneler.close()
        self._api.close()
        self._check_api.close()

    def status(self) -> SSHStatus:
        """Return the state of the nodes, and the last error."""
        status, state = self.tunneler.status(), self._unusable() or self.cluster_tunnel.member_status
        if state is not None and state.credential.status == "False":
            return evolve(status, last_error=state.credential.text)
        return status

    # Callbacks of the parts

    async def _list(self) -> Sequence[Node]:
        self._change_cloud()
        nodes = await self._nodes()
        self.remembered.remember(nodes)
        self.host_keys.keep([*nodes, *self.tunnels.nodes])
        return nodes

    def _connected(self) -> list[Node]:
        return [node for node in self.tunnels.nodes if self.tunnels.at(node) is not None]

    async def _try(self, node: Node) -> None:
        """Log in at *node*, and disconnect."""
        tunnel = self.tunnels.create(node)
        await tunnel.open()
        tunnel.close("this was only a test")

    def tunnels_changed(self) -> None:
        """Register the cluster's tunnel while a node's tunnel is open, and report whether it works."""
        if self.tunnels.is_up and not self._is_registered:
            self._is_registered = True
            self.cluster_tunnel.since = self._epoch()
            self._registry.add(self.cluster_tunnel)
            self.tunneler.list_soon()  # the API server is reachable from now on
            self.tunnels.check()  # finds out within a minute if it does not answer
        elif not self.tunnels.is_up:
            self._unregister()
        self._registry.note(self.cluster.name, self.tunnels.trouble)

    def _unregister(self) -> None:
        if self._is_registered:
            self._is_registered = False
            self._registry.remove(self.cluster_tunnel)
            self.cluster_tunnel.member_status = None
