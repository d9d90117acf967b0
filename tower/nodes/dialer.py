"""Equivalent of kube-apiserver's ``CreateNodeDialer``: reaches what the nodes of a cluster reach."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.cloud.interfaces import ICloudProvider
from tower.cloud.registry import init_cloud_provider
from tower.clusters.node import SSH_PORT
from tower.clusters.ssh_spec import ADDRESS_TYPES, KUBELET_PORT
from tower.errors import ConfigurationError
from tower.files import read_plain
from tower.kube.apiserver import client_context
from tower.kube.kubeconfig import KubeAccess
from tower.net.budget import Budget
from tower.net.connecting import connect
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published
from tower.nodes.cloud import NodeCloud
from tower.nodes.health import kubelet_health
from tower.nodes.http_agent import CONNECT as AGENT_CONNECT
from tower.nodes.http_agent import NodeAgent
from tower.nodes.keypair import KeyPairFiles
from tower.nodes.kubelets import AUTHORITY_LIMIT
from tower.nodes.node_sources import Lister, cloud_nodes
from tower.nodes.ssh.client import CONNECT
from tower.nodes.ssh.host_keys import AnyHostKey, HostKeys
from tower.nodes.ssh.known_hosts import KnownHosts
from tower.nodes.tunneler import SSHTunneler, create_tunneler, truncate_user
from tower.nodes.tunnels.context import HealthCheck
from tower.nodes.tunnels.tunnel import NodeLogin
from tower.reactor.clock import TimeOfDay
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.timers import Wheel

#: Memory that streams to nodes may borrow, B.
BUDGET = 64 * 1024 * 1024

InitCloud: TypeAlias = Callable[[str, str], ICloudProvider | None]
#: See `tower.net.connecting.connect`.
Reach: TypeAlias = Callable[..., Deferred[Any]]

_log = Logger()


@frozen
class NodeDialerOptions:
    """The values of kube-apiserver's flags with these names.

    :ivar ssh_user: login at the nodes; empty: no tunnels.
    :ivar ssh_keyfile: its private key; created if there is none.
    :ivar ssh_port: default SSH port of nodes.
    :ivar host_keys: how nodes are verified; the argument of `create_node_dialer` takes precedence.
    :ivar known_hosts: file in OpenSSH's format.
    :ivar cloud_provider: lists the instances and installs the key; empty: none.
    :ivar cloud_config: its configuration file; empty: none.
    :ivar address_types: of an instance's addresses, the first that it has is dialed.
    :ivar kubelet_port: of every node, for health checks.
    :ivar kubelet_authority: file with the CAs of kubelets, pods and services; empty: the system's.
    :ivar insecure_skip_tls_verify: do not verify certificates, as kube-apiserver never does.
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
    reactor: ISocketReactor,
    *,
    lister: Lister | None = None,
    host_keys: HostKeys | None = None,
    tls: ssl.SSLContext | None = None,
    init_cloud: InitCloud = init_cloud_provider,
    reach: Reach = connect,
) -> tuple[SSHTunneler | None, NodeAgent]:
    """Return a tunneler, not running yet, and an HTTP agent that connects through its tunnels.

    For other Twisted programs (``docs/node-tunnels.md``); the product itself does not call it.  Start the
    tunneler with ``run``; ``close`` stops it and the cloud provider.  Without a user the tunneler is None,
    and the agent connects directly.

    :param reactor: for connections and timers.
    :param lister: lists the nodes; None: the cloud does, or ``run`` gets one.
    :param host_keys: verifies the nodes, instead of *options*.
    :param tls: for the agent, instead of *options*; with a client certificate, for example.
    :param init_cloud: creates the cloud provider.
    :param reach: connects.
    :raise ConfigurationError: the options are invalid; with upstream's text if it has one.
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
    reactor: ISocketReactor,
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
        raise ConfigurationError(
            "ssh_keyfile is missing: set the path of the private key; it is created if there is none"
        )
    cloud = NodeCloud(reactor, provider)
    if lister is None and cloud.instances is not None:
        lister = cloud_nodes(cloud.instances, options.address_types, options.ssh_port, clock=reactor)
    key = KeyPairFiles(options.ssh_keyfile)
    login = NodeLogin(truncate_user(options.ssh_user), key.private, host_keys or _host_keys(options))
    return create_tunneler(
        reactor,
        partial(reach, reactor, timeout=CONNECT),
        options.ssh_user,
        lambda: login,
        key,
        lambda: cloud,
        lister,
        clock=Wheel(reactor),
        budget=Budget(BUDGET),
        health=_health(options, reactor),
        epoch=TimeOfDay(reactor).seconds,
    )


def _context(options: NodeDialerOptions) -> ssl.SSLContext:
    """Return the agent's TLS settings; raise `ConfigurationError` if the file with the CAs is unusable."""
    file = options.kubelet_authority
    try:
        authority = read_plain(file, AUTHORITY_LIMIT) if file else None
    except OSError as e:
        raise ConfigurationError(f"{file}: {e.strerror}") from e
    refuse_published(file, authority or b"", ANOTHER_CA_CURE)
    if options.insecure_skip_tls_verify:
        _log.warn(
            "NOT SECURE: certificates of kubelets, pods and services are not verified "
            "(insecure_skip_tls_verify)"
        )
    return client_context(KubeAccess(file, authority, insecure=options.insecure_skip_tls_verify))


def _host_keys(options: NodeDialerOptions) -> HostKeys:
    if options.host_keys == "insecure-ignore":
        _log.warn("NOT SECURE: host keys of nodes are not verified (insecure-ignore)")
        return AnyHostKey()
    return KnownHosts(Path(options.known_hosts).expanduser())


def _health(options: NodeDialerOptions, reactor: ISocketReactor) -> HealthCheck:
    """Return the health check of each node's kubelet; its certificate is not valid for ``127.0.0.1``."""
    authority = None
    if options.kubelet_authority and not options.insecure_skip_tls_verify:
        authority = _context(options)
        authority.check_hostname = False
    return kubelet_health(f"https://127.0.0.1:{options.kubelet_port}/healthz", reactor, authority)
