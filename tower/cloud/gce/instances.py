"""The instances of a Compute Engine project, and their zones, as nodes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from operator import itemgetter
from typing import TypeVar

from zope.interface import implementer

from tower.cloud.errors import CloudError, InstanceNotFound
from tower.cloud.gce.compute import Compute, Resource
from tower.cloud.gce.config import GCEConfig
from tower.cloud.gce.key_installer import KeyInstaller
from tower.cloud.gce.metadata import MetadataService
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    INTERNAL_IP,
    IInstances,
    Instance,
    IZones,
    NodeAddress,
    Zone,
)

#: States in which an instance can be expected to answer, now or soon.
UP = frozenset(("PROVISIONING", "STAGING", "RUNNING", "REPAIRING"))
#: States in which one is shut down.
DOWN = frozenset(("STOPPED", "SUSPENDED", "TERMINATED"))

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
T = TypeVar("T")

_PROVIDER_ID = re.compile(r"gce://([^/]+)/([^/]+)/([^/]+)")


class Machines:
    """Finds the instances that the configuration means.

    :param project: returns the project's id.
    """

    def __init__(self, compute: Compute, config: GCEConfig, project: Callable[[], Awaitable[str]]) -> None:
        self._compute = compute
        self._config = config
        self.project = project

    async def all(self, read: Callable[[Resource], T], *, metadata: bool = False) -> list[T]:
        """Return what *read* makes of all of them, by name.

        :param metadata: with their metadata.
        """

        def read_if_meant(instance: Resource) -> tuple[str, str, T] | None:
            if not self._is_meant(instance):
                return None
            return instance["name"], instance["zone"], read(instance)

        prefix = self._config.prefix
        # A regular expression, where a dot matches more than a dot: what passes is looked at again.
        wanted = f'name eq "{prefix}.*"' if prefix else ""
        found = await self._compute.instances(self._only_zone, wanted, read_if_meant, metadata=metadata)
        found.sort(key=itemgetter(0, 1))
        return [each for _, _, each in found]

    async def named(self, name: str) -> Resource:
        """Return the one of a node.

        :param name: its own, or a DNS name that begins with it.
        :raise InstanceNotFound: there is none.
        """
        short = name.partition(".")[0]
        if not _NAME.fullmatch(short):
            raise InstanceNotFound

        def is_it(instance: Resource) -> Resource | None:
            return instance if instance["name"] == short and self._is_meant(instance) else None

        for each in await self._compute.instances(self._only_zone, f'name eq "{short}"', is_it):
            return each
        raise InstanceNotFound

    async def identified(self, provider_id: str) -> Resource:
        """Return the one that ``gce://<project>/<zone>/<name>`` means.

        :raise InstanceNotFound: there is none.
        :raise CloudError: it is of another project, of which we know nothing.
        """
        project, zone, name = split_provider_id(provider_id)
        if project != await self.project():
            raise CloudError(f"{provider_id[:200]} is of another project than {await self.project()}")
        return await self._compute.instance(zone, name)

    def addresses(self, instance: Resource) -> tuple[NodeAddress, ...]:
        """Return the addresses of one, each once: those inside first."""
        interfaces = instance.get("networkInterfaces") or []
        network = self._config.network
        meant = [each for each in interfaces if _last(each.get("network")) == network]
        found = [address for each in meant or interfaces for address in _addresses(each)]
        found.sort(key=lambda address: address.type != INTERNAL_IP)
        return tuple(dict.fromkeys(found))

    @property
    def _only_zone(self) -> str:
        return "" if self._config.many_zones else self._config.zone

    def _is_meant(self, instance: Resource) -> bool:
        config = self._config
        tags = (instance.get("tags") or {}).get("items") or ()
        return (
            instance["name"].startswith(config.prefix)
            and (not config.tags or not config.tags.isdisjoint(tags))
            and (not config.region or zone_of(instance).region == config.region)
        )


@implementer(IInstances)
class GCEInstances:
    """See `IInstances`."""

    def __init__(self, machines: Machines, installer: KeyInstaller) -> None:
        self._machines = machines
        self._installer = installer

    async def node_addresses(self, name: str) -> tuple[NodeAddress, ...]:
        """See `IInstances`."""
        return self._machines.addresses(await self._machines.named(name))

    async def node_addresses_by_provider_id(self, provider_id: str) -> tuple[NodeAddress, ...]:
        """See `IInstances`."""
        return self._machines.addresses(await self._machines.identified(provider_id))

    async def instance_id(self, name: str) -> str:
        """Return ``<project>/<zone>/<name>``."""
        found = await self._machines.named(name)
        return f"{await self._machines.project()}/{zone_of(found).failure_domain}/{found['name']}"

    async def instance_type(self, name: str) -> str:
        """See `IInstances`."""
        return _last((await self._machines.named(name)).get("machineType"))

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        """See `IInstances`."""
        return _last((await self._machines.identified(provider_id)).get("machineType"))

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """See `IInstances` and `KeyInstaller.install`."""
        await self._installer.install(user, key)

    async def current_node_name(self, hostname: str) -> str:
        """Return *hostname*."""
        return hostname

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        try:
            await self._machines.identified(provider_id)
        except InstanceNotFound:
            return False
        return True

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        return (await self._machines.identified(provider_id)).get("status") in DOWN

    async def list_instances(self) -> list[Instance]:
        """See `IInstances`."""
        project = await self._machines.project()

        def read(said: Resource) -> Instance:
            zone = zone_of(said)
            return Instance(
                name=said["name"],
                provider_id=f"gce://{project}/{zone.failure_domain}/{said['name']}",
                addresses=self._machines.addresses(said),
                type=_last(said.get("machineType")),
                zone=zone,
                running=said.get("status") in UP,
            )

        return await self._machines.all(read)


@implementer(IZones)
class GCEZones:
    """See `IZones`."""

    def __init__(self, machines: Machines, config: GCEConfig, metadata: MetadataService) -> None:
        self._machines = machines
        self._zone = config.zone
        self._metadata = metadata

    async def get_zone(self) -> Zone:
        """Return the zone of the configuration, or of the machine we are on."""
        return _zone(self._zone or await self._metadata.zone())

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """See `IZones`; the id says it."""
        return _zone(split_provider_id(provider_id)[1])

    async def get_zone_by_node_name(self, name: str) -> Zone:
        """See `IZones`."""
        return zone_of(await self._machines.named(name))


def split_provider_id(provider_id: str) -> tuple[str, str, str]:
    """Return project, zone and name.

    :raise CloudError: it is no provider id of Compute Engine.
    """
    match = _PROVIDER_ID.fullmatch(provider_id)
    if match is None:
        raise CloudError(f"no provider id of the form gce://<project>/<zone>/<name>: {provider_id[:200]!r}")
    return match[1], match[2], match[3]


def zone_of(instance: Resource) -> Zone:
    """Return the zone of an instance."""
    return _zone(_last(instance.get("zone")))


def _zone(name: str) -> Zone:
    return Zone(name, name.rpartition("-")[0])


def _last(url: object) -> str:
    """Return what a URL of a resource ends in."""
    return str(url or "").rpartition("/")[2]


def _addresses(interface: Resource) -> Iterator[NodeAddress]:
    if address := interface.get("networkIP"):
        yield NodeAddress(INTERNAL_IP, address)
    if address := interface.get("ipv6Address"):
        yield NodeAddress(INTERNAL_IP, address)
    for access in interface.get("accessConfigs") or ():
        if address := access.get("natIP"):
            yield NodeAddress(EXTERNAL_IP, address)
    for access in interface.get("ipv6AccessConfigs") or ():
        if address := access.get("externalIpv6"):
            yield NodeAddress(EXTERNAL_IP, address)
