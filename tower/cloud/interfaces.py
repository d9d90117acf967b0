"""What a cloud provider is and does.

Whoever writes one implements `ICloudProvider` and, of the others, what its cloud has.  Names of nodes, ids
and records are plain values.  Everything that asks the cloud returns an awaitable, raises
`tower.cloud.errors.CloudError`, ends within minutes whatever the cloud does, and may be cancelled.  All of it
is called in the reactor's thread.  ``docs/cloud-providers.md`` tells how to write one.
"""

# ruff: noqa: N805 (methods of interfaces have no self)

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from attrs import frozen
from zope.interface import Interface

#: The kinds of addresses a node has, by their names in Kubernetes.
EXTERNAL_IP = "ExternalIP"
INTERNAL_IP = "InternalIP"
EXTERNAL_DNS = "ExternalDNS"
INTERNAL_DNS = "InternalDNS"
HOSTNAME = "Hostname"


@frozen
class NodeAddress:
    """One address of a node.

    :ivar type: `EXTERNAL_IP`, `INTERNAL_IP`, `EXTERNAL_DNS`, `INTERNAL_DNS` or `HOSTNAME`.
    :ivar address: IPv6 without brackets.
    """

    type: str
    address: str


@frozen
class Zone:
    """Where something stands: a zone within a region; empty where a cloud has none."""

    failure_domain: str = ""
    region: str = ""


@frozen
class Instance:
    """One machine.

    :ivar name: the node's name.
    :ivar provider_id: ``<provider>://<id>``, as in a node's ``spec.providerID``.
    :ivar addresses: all that the cloud knows.
    :ivar type: of machine.
    :ivar running: whether it can be expected to answer.
    :ivar ssh_port: where its sshd listens; 0: the cloud does not know.  Tower's own.
    """

    name: str
    provider_id: str
    addresses: tuple[NodeAddress, ...] = ()
    type: str = ""
    zone: Zone = Zone()
    running: bool = True
    ssh_port: int = 0


@frozen
class Route:
    """A route to the pods of a node.

    :ivar name: the cloud's; ignored when one is created.
    """

    name: str
    target_node: str
    destination_cidr: str


@frozen
class LoadBalancerStatus:
    """Where a load balancer is reached.

    :ivar ingress: addresses or names.
    """

    ingress: tuple[str, ...] = ()


class ICloudProvider(Interface):
    """A cloud, as one configuration describes it.

    The accessors are called after `initialize`.  They return None for what this provider does not support;
    what they return stays the same.
    """

    def provider_name() -> str:
        """Return the provider's name, which provider ids begin with."""

    def initialize(reactor: Any) -> None:
        """Get ready to be asked: called once, before anything is asked; does not ask the cloud itself.

        :param reactor: for everything that waits or connects.  May start background work, which `stop` ends.
        """

    def stop() -> None:
        """End background work, and whatever is being asked.  May be called again."""

    def instances() -> IInstances | None:
        """Return what knows the machines."""

    def zones() -> IZones | None:
        """Return what knows the zones."""

    def clusters() -> IClusters | None:
        """Return what knows the clusters of this cloud."""

    def routes() -> IRoutes | None:
        """Return what knows the routes to pods."""

    def load_balancer() -> ILoadBalancer | None:
        """Return what makes load balancers."""

    def has_cluster_id() -> bool:
        """Tell whether the cluster's id is known, so that what is its own can be told from others' things."""


class IInstances(Interface):
    """The machines of a cloud."""

    def node_addresses(name: str) -> Awaitable[Sequence[NodeAddress]]:
        """Return the addresses of a node.

        :raise InstanceNotFound: there is no such node.
        """

    def node_addresses_by_provider_id(provider_id: str) -> Awaitable[Sequence[NodeAddress]]:
        """Return the addresses of a node.  Never asks the metadata service of the machine we are on.

        :raise InstanceNotFound: there is no such node.
        """

    def instance_id(name: str) -> Awaitable[str]:
        """Return the cloud's id of a node, stopped or not: what its provider id has behind ``<provider>://``.

        :raise InstanceNotFound: there is no such node.
        """

    def instance_type(name: str) -> Awaitable[str]:
        """Return the type of a node's machine.

        :raise InstanceNotFound: there is no such node.
        """

    def instance_type_by_provider_id(provider_id: str) -> Awaitable[str]:
        """Return the type of a node's machine.

        :raise InstanceNotFound: there is no such node.
        """

    def add_ssh_key_to_all_instances(user: str, key: bytes) -> Awaitable[None]:
        """Let the owner of *key* log in as *user* on all instances; one that is there already stays.

        Other keys, and other users' keys, stay as they are, whoever else changes them meanwhile.

        :param key: ``<type> <base64>``, the first two words of a line of OpenSSH's ``authorized_keys``; a
            comment and a line's end may follow.
        :raise NotImplementedByCloud: this cloud cannot, as it is set up; keys have to come another way.
        """

    def current_node_name(hostname: str) -> Awaitable[str]:
        """Return the name of the node that we are on, whose host name is *hostname*; mostly the same."""

    def instance_exists_by_provider_id(provider_id: str) -> Awaitable[bool]:
        """Tell whether there is such a machine, stopped ones included.

        False means that its node may be deleted, so an answer that is not certain has to be an exception.
        """

    def instance_shutdown_by_provider_id(provider_id: str) -> Awaitable[bool]:
        """Tell whether a machine is shut down.

        :raise InstanceNotFound: there is no such machine.
        """

    def list_instances() -> Awaitable[Sequence[Instance]]:
        """Return all machines that the configuration says are the cluster's, stopped ones too.

        All of them, or an exception.  Tower's own: the list of nodes that are reached by SSH comes from
        here.
        """


class ISSHKeyLease(Interface):
    """Keys that are let in for a moment only.  Tower's own; `IInstances` may provide it besides."""

    def prepare_dial(user: str, key: bytes, host: str) -> Awaitable[None]:
        """Let the owner of *key* log in as *user* at *host* for the next seconds.

        Called right before a tunnel to *host* is dialled, each time; many hosts at one time.

        :param key: as for `IInstances.add_ssh_key_to_all_instances`.
        :param host: an address of a machine of `IInstances.list_instances`, or its name.
        :raise InstanceNotFound: there is no such machine.
        """


class IZones(Interface):
    """The zones of a cloud."""

    def get_zone() -> Awaitable[Zone]:
        """Return the zone that we are in."""

    def get_zone_by_provider_id(provider_id: str) -> Awaitable[Zone]:
        """Return a machine's zone.

        :raise InstanceNotFound: there is no such machine.
        """

    def get_zone_by_node_name(name: str) -> Awaitable[Zone]:
        """Return a node's zone.

        :raise InstanceNotFound: there is no such node.
        """


class IClusters(Interface):
    """The clusters of a cloud."""

    def list_clusters() -> Awaitable[Sequence[str]]:
        """Return their names."""

    def master(cluster: str) -> Awaitable[str]:
        """Return the DNS name or the address of a cluster's master."""


class IRoutes(Interface):
    """The routes to pods."""

    def list_routes(cluster: str) -> Awaitable[Sequence[Route]]:
        """Return the routes that are managed for a cluster."""

    def create_route(cluster: str, name_hint: str, route: Route) -> Awaitable[None]:
        """Create a route.

        :param name_hint: something that makes the cloud's name for it unique.
        """

    def delete_route(cluster: str, route: Route) -> Awaitable[None]:
        """Delete a route.

        :param route: as `list_routes` returned it.
        """


class ILoadBalancer(Interface):
    """The load balancers of a cloud.

    Services are Kubernetes objects as JSON says them, nodes are names; neither is changed.
    """

    def get_load_balancer(cluster: str, service: Mapping[str, Any]) -> Awaitable[LoadBalancerStatus | None]:
        """Return the status of a service's load balancer; None: it has none."""

    def get_load_balancer_name(cluster: str, service: Mapping[str, Any]) -> Awaitable[str]:
        """Return the name of a service's load balancer, whether there is one or not."""

    def ensure_load_balancer(
        cluster: str, service: Mapping[str, Any], nodes: Sequence[str]
    ) -> Awaitable[LoadBalancerStatus]:
        """Create a load balancer, or make it what it should be."""

    def update_load_balancer(
        cluster: str, service: Mapping[str, Any], nodes: Sequence[str]
    ) -> Awaitable[None]:
        """Change the nodes behind a load balancer."""

    def ensure_load_balancer_deleted(cluster: str, service: Mapping[str, Any]) -> Awaitable[None]:
        """Delete a load balancer; fine if it is gone already, or half of it."""


def default_load_balancer_name(service: Mapping[str, Any]) -> str:
    """Return the name that a service's load balancer has unless its cloud wants another."""
    uid = str(service["metadata"]["uid"])
    return ("a" + uid.replace("-", ""))[:32]
