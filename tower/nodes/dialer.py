"""kube-apiserver's ``CreateNodeDialer``: how a program reaches what the nodes of a cluster reach."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.cloud.interfaces import ICloudProvider, IInstances, ISSHKeyLease
from tower.cloud.registry import init_cloud_provider
from tower.clusters.node import SSH_PORT, Node
from tower.clusters.ssh_spec import ADDRESS_TYPES, KUBELET_PORT
from tower.errors import ConfigurationError
from tower.files import read_plain
from tower.kube.apiserver import client_context
from tower.kube.kubeconfig import KubeAccess
from tower.net.budget import Budget
from tower.net.connecting import connect
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published
from tower.nodes.health import kubelet_health
from tower.nodes.http_agent import CONNECT as AGENT_CONNECT
from tower.nodes.http_agent import NodeAgent
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.kubelets import AUTHORITY_LIMIT
from tower.nodes.node_sources import Lister, cloud_nodes
from tower.nodes.ssh.client import CONNECT
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeys
from tower.nodes.ssh.known_hosts import KnownHosts
from tower.nodes.tunneler import SSHTunneler, truncate_user
from tower.nodes.tunnels.interfaces import HealthCheck
from tower.nodes.tunnels.tunnel import NodeLogin, NodeTunnel
from tower.nodes.tunnels.tunnels import NodeTunnels
from tower.reactor.clock import TimeOfDay
from tower.reactor.timers import Wheel

#: How much memory streams to nodes may borrow, B.
BUDGET = 64 * 1024 * 1024

InitCloud: TypeAlias = Callable[[str, str], ICloudProvider | None]
#: See `tower.net.connecting.connect`.
Reach: TypeAlias = Callable[..., Deferred[Any]]

_log = Logger()


@frozen
class NodeDialerOptions:
    """What kube-apiserver's flags of these names say; without a user nothing is tunnelled.

    :ivar ssh_user: to log in at the nodes as.
    :ivar ssh_keyfile: his private key; made if there is none.
    :ivar ssh_port: of nodes for which nobody says another.
    :ivar host_keys: how nodes prove who they are; a `tower.nodes.ssh.host_keys.HostKeys` may be given instead.
    :ivar known_hosts: OpenSSH's file.
    :ivar cloud_provider: lists the instances and installs the key; empty without one.
    :ivar cloud_config: its file; empty without one.
    :ivar address_types: which of an instance's addresses is dialled, the preferred one first.
    :ivar kubelet_port: of every node, where its health is looked at.
    :ivar kubelet_authority: file with the CAs of kubelets, pods and services; empty: the system's.
    :ivar insecure_skip_tls_verify: do not verify whom the agent reaches by https, as upstream never does.
    """

    ssh_user: str = ""
    ssh_keyfile: str = ""
    ssh_port: int = SSH_PORT
    host_keys: Literal["known-hosts", "insecure-ignore"] = "known-hosts"
    known_hosts: str = "~/.ssh/known_hosts"
    cloud_provider: str = ""
    cloud_config: str = ""
    address_types: tuple[str, ...] = ADDRESS_TYPES
    kubelet_port: int = KUBELET_PORT
    kubelet_authority: str = ""
    insecure_skip_tls_verify: bool = False


def create_node_dialer(
    options: NodeDialerOptions,
    reactor: Any,
    *,
    lister: Lister | None = None,
    host_keys: HostKeys | None = None,
    tls: ssl.SSLContext | None = None,
    init_cloud: InitCloud = init_cloud_provider,
    reach: Reach = connect,
) -> tuple[SSHTunneler | None, NodeAgent]:
    """Return what keeps tunnels to nodes, not running yet, and an agent that asks by way of them.

    Call the tunneler's ``run`` to begin, and in the end its ``close``, which ends the cloud provider, too.
    Without a user there is no tunneler, and the agent dials by itself.

    :param reactor: connects and waits.
    :param lister: lists the nodes; None: the cloud does, or ``run`` is given one.
    :param host_keys: judges the nodes' keys, instead of what *options* say.
    :param tls: of the agent, instead of what *options* say; for a client certificate, for example.
    :param init_cloud: makes the cloud provider.
    :param reach: connects.
    :raise ConfigurationError: something cannot work, in upstream's words where it has any.
    """
    context = tls or _context(options)
    if not options.ssh_user:

        def dial(host: str, port: int) -> Deferred[Any]:
            return reach(reactor, host, port, timeout=AGENT_CONNECT)

        return None, NodeAgent(reactor, dial, context)
    tunneler = _tunneler(options, reactor, lister, host_keys, init_cloud, reach)
    return tunneler, NodeAgent(reactor, tunneler.dial, context)


def _tunneler(
    options: NodeDialerOptions,
    reactor: Any,
    lister: Lister | None,
    host_keys: HostKeys | None,
    init_cloud: InitCloud,
    reach: Reach,
) -> SSHTunneler:
    try:
        provider = init_cloud(options.cloud_provider, options.cloud_config)
    except ConfigurationError as e:
        raise ConfigurationError(f"cloud provider could not be initialized: {e}") from e
    if not options.kubelet_port:
        raise ConfigurationError("must enable kubelet port if proxy ssh-tunneling is specified")
    if not options.ssh_keyfile:
        raise ConfigurationError("ssh_keyfile is missing: say where the private key is, or is to be made")
    instances = None
    if provider is not None:
        provider.initialize(reactor)
        instances = provider.instances()
    if lister is None and instances is not None:
        lister = cloud_nodes(instances, options.address_types, options.ssh_port, clock=reactor)
    key = KeyPairFiles(options.ssh_keyfile)
    user = truncate_user(options.ssh_user)
    login = NodeLogin(user, key.private, host_keys or _host_keys(options))
    day, wheel, budget = TimeOfDay(reactor), Wheel(reactor), Budget(BUDGET)
    dial = _leasing(partial(reach, reactor, timeout=CONNECT), instances, user, key)

    def create(node: Node) -> NodeTunnel:
        return NodeTunnel(reactor, wheel, node, login, budget, epoch=day.seconds, dial=dial)

    tunnels = NodeTunnels(reactor, create, user=user, health=_health(options, reactor), epoch=day.seconds)
    return SSHTunneler(
        reactor,
        options.ssh_user,
        key,
        tunnels,
        lister=lister,
        install=None if instances is None else instances.add_ssh_key_to_all_instances,
        epoch=day.seconds,
        on_close=(lambda: None) if provider is None else provider.stop,
    )


def _context(options: NodeDialerOptions) -> ssl.SSLContext:
    """Return how those who are reached by https are verified.

    :raise ConfigurationError: the file with their CAs is no good.
    """
    file = options.kubelet_authority
    try:
        authority = read_plain(file, AUTHORITY_LIMIT) if file else None
    except OSError as e:
        raise ConfigurationError(f"{file}: {e.strerror}") from e
    refuse_published(file, authority or b"", ANOTHER_CA_CURE)
    if options.insecure_skip_tls_verify:
        _log.warn("NOT SECURE: what nodes reach by https is believed to be what it says")
    return client_context(KubeAccess(file, authority, insecure=options.insecure_skip_tls_verify))


def _host_keys(options: NodeDialerOptions) -> HostKeys:
    if options.host_keys == "insecure-ignore":
        _log.warn("NOT SECURE: nodes are believed to be who they say (insecure-ignore)")
        return AnyHostKey()
    return KnownHosts(Path(options.known_hosts).expanduser())


def _health(options: NodeDialerOptions, reactor: Any) -> HealthCheck:
    """Return the look at each node's kubelet, which has no name for a certificate there: ``127.0.0.1``."""
    authority = None
    if options.kubelet_authority and not options.insecure_skip_tls_verify:
        authority = _context(options)
        authority.check_hostname = False
    return kubelet_health(f"https://127.0.0.1:{options.kubelet_port}/healthz", reactor, authority)


def _leasing(
    dial: Callable[[str, int], Deferred[Any]], instances: IInstances | None, user: str, key: KeyPairFiles
) -> Callable[[str, int], Deferred[Any]]:
    """Return what connects to a node's sshd, which some clouds have to be told of right before."""
    if instances is None or not ISSHKeyLease.providedBy(instances):
        return dial
    lease: ISSHKeyLease = instances

    async def leased(host: str, port: int) -> Any:
        await lease.prepare_dial(user, key.public_line(), host)
        return await dial(host, port)

    return lambda host, port: Deferred.fromCoroutine(leased(host, port))
