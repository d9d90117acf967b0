"""Interfaces of cloud providers, and their records.

A provider implements `ICloudProvider` and those of the other interfaces that its cloud supports.  Methods
that send requests return awaitables, raise `tower.cloud.errors.CloudError`, end within minutes, and can be
cancelled. All methods are called in the reactor's thread.  ``docs/cloud-providers.md`` explains how to write
a provider.

Tower itself uses `ICloudProvider`, `IInstances` and `ISSHKeyLease`.  The others are upstream's, for programs
that get a provider from `tower.cloud.registry`, such as controllers, and for providers that are ported from
Kubernetes.
"""

# ruff: noqa: N805 (methods of interfaces have no self)

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from attrs import frozen
from zope.interface import Interface

#: Kubernetes' types of node addresses.
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
    """A zone within a region; empty if the cloud has none."""

    failure_domain: str = ""
    region: str = ""


@frozen
class Instance:
    """One machine.

    :ivar name: of the node.
    :ivar provider_id: ``<provider>://<id>``, as in a node's ``spec.providerID``.
    :ivar addresses: all known addresses.
    :ivar type: of the machine.
    :ivar running: whether it is running, or will be soon.
    :ivar ssh_port: port of its sshd; 0: unknown.  Not in upstream.
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

    :ivar name: the cloud's; ignored by `IRoutes.create_route`.
    """

    name: str
    target_node: str
    destination_cidr: str


@frozen
class LoadBalancerStatus:
    """Addresses of a load balancer.

    :ivar ingress: addresses or DNS names.
    """

    ingress: tuple[str, ...] = ()


class ICloudProvider(Interface):
    """A cloud with one configuration.

    The accessors are called after `initialize`.  They return None for an unsupported interface, and always
    the same object otherwise.
    """

    def provider_name() -> str:
        """Return the provider's name, with which provider IDs begin."""

    def initialize(reactor: Any) -> None:
        """Prepare for calls; called once, before other methods.  Must not send requests.

        :param reactor: for timers and connections.  Background work may start, which `stop` ends.
        """

    def stop() -> None:
        """End background work, and cancel requests.  Idempotent."""

    def instances() -> IInstances | None:
        """Return the machines."""

    def zones() -> IZones | None:
        """Return the zones."""

    def clusters() -> IClusters | None:
        """Return the clusters of this cloud."""

    def routes() -> IRoutes | None:
        """Return the routes to pods."""

    def load_balancer() -> ILoadBalancer | None:
        """Return the load balancers."""

    def has_cluster_id() -> bool:
        """Return whether the cluster's ID is known, which marks its own resources."""


class IInstances(Interface):
    """The machines of a cloud."""

    def node_addresses(name: str) -> Awaitable[Sequence[NodeAddress]]:
        """Return the addresses of a node.

        :raise InstanceNotFound: there is no such node.
        """

    def node_addresses_by_provider_id(provider_id: str) -> Awaitable[Sequence[NodeAddress]]:
        """Return the addresses of a node.  Does not use the metadata service of Tower's machine.

        :raise InstanceNotFound: there is no such node.
        """

    def instance_id(name: str) -> Awaitable[str]:
        """Return the cloud's ID of a node, stopped or not: its provider ID without ``<provider>://``.

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
        """Install a user's key on all instances; idempotent.

        Preserves other keys and users, also with concurrent changes by others.

        :param key: ``<type> <base64>``, as in OpenSSH's ``authorized_keys``; a comment and a newline may
            follow.
        :raise NotImplementedByCloud: this cloud, or its setup, does not support it.
        """

    def current_node_name(hostname: str) -> Awaitable[str]:
        """Return the name of the node that the program runs on; *hostname* is its host name."""

    def instance_exists_by_provider_id(provider_id: str) -> Awaitable[bool]:
        """Return whether a machine exists, running or stopped.

        False means that its node may be deleted; raise if the answer is uncertain.
        """

    def instance_shutdown_by_provider_id(provider_id: str) -> Awaitable[bool]:
        """Return whether a machine is shut down.

        :raise InstanceNotFound: there is no such machine.
        """

    def list_instances() -> Awaitable[Sequence[Instance]]:
        """Return all machines that the configuration selects, also stopped ones.

        Raise instead of returning an incomplete list: nodes that are missing lose their tunnels.  Not in
        upstream.
        """


class ISSHKeyLease(Interface):
    """Keys that expire within seconds; an object with `IInstances` may provide it too.  Not in upstream."""

    def prepare_dial(user: str, key: bytes, host: str) -> Awaitable[None]:
        """Install a user's key at *host* for the next seconds.

        Called before each dial of a tunnel, for many hosts in parallel.

        :param key: as for `IInstances.add_ssh_key_to_all_instances`.
        :param host: an address of a machine of `IInstances.list_instances`, or its name.
        :raise InstanceNotFound: there is no such machine.
        """


class IZones(Interface):
    """The zones of a cloud.  Not called by Tower, see above."""

    def get_zone() -> Awaitable[Zone]:
        """Return the zone that the program runs in."""

    def get_zone_by_provider_id(provider_id: str) -> Awaitable[Zone]:
        """Return a machine's zone.

        :raise InstanceNotFound: there is no such machine.
        """

    def get_zone_by_node_name(name: str) -> Awaitable[Zone]:
        """Return a node's zone.

        :raise InstanceNotFound: there is no such node.
        """


class IClusters(Interface):
    """The clusters of a cloud.  Not called by Tower, see above."""

    def list_clusters() -> Awaitable[Sequence[str]]:
        """Return their names."""

    def master(cluster: str) -> Awaitable[str]:
        """Return the DNS name or the address of a cluster's master."""


class IRoutes(Interface):
    """The routes to pods.  Not called by Tower, see above."""

    def list_routes(cluster: str) -> Awaitable[Sequence[Route]]:
        """Return the managed routes of a cluster."""

    def create_route(cluster: str, name_hint: str, route: Route) -> Awaitable[None]:
        """Create a route.

        :param name_hint: makes the route's name unique.
        """

    def delete_route(cluster: str, route: Route) -> Awaitable[None]:
        """Delete a route.

        :param route: of `list_routes`.
        """


class ILoadBalancer(Interface):
    """The load balancers of a cloud.  Not called by Tower, see above.

    Services are Kubernetes objects in JSON, nodes are names.
    """

    def get_load_balancer(cluster: str, service: Mapping[str, Any]) -> Awaitable[LoadBalancerStatus | None]:
        """Return the status of a service's load balancer; None: there is none."""

    def get_load_balancer_name(cluster: str, service: Mapping[str, Any]) -> Awaitable[str]:
        """Return the name of a service's load balancer, which need not exist."""

    def ensure_load_balancer(
        cluster: str, service: Mapping[str, Any], nodes: Sequence[str]
    ) -> Awaitable[LoadBalancerStatus]:
        """Create or update a load balancer."""

    def update_load_balancer(
        cluster: str, service: Mapping[str, Any], nodes: Sequence[str]
    ) -> Awaitable[None]:
        """Change the nodes of a load balancer."""

    def ensure_load_balancer_deleted(cluster: str, service: Mapping[str, Any]) -> Awaitable[None]:
        """Delete a load balancer; idempotent, also after a partial deletion."""


def default_load_balancer_name(service: Mapping[str, Any]) -> str:
    """Return the default name of a service's load balancer."""
    uid = str(service["metadata"]["uid"])
    return ("a" + uid.replace("-", ""))[:32]
