"""The instances of a Compute Engine project, as nodes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from operator import itemgetter
from typing import TypeVar

from attrs import define

from tower.cloud.errors import CloudError, InstanceNotFound
from tower.cloud.gce.compute import Compute, Resource
from tower.cloud.gce.config import GCEConfig
from tower.cloud.gce.key_installer import KeyInstaller
from tower.cloud.gce.metadata import MetadataService
from tower.cloud.interfaces import EXTERNAL_IP, INTERNAL_IP, Instance, NodeAddress, Zone
from tower.cloud.provider import CloudMachines

#: States of instances that answer, now or soon.
UP = frozenset(("PROVISIONING", "STAGING", "RUNNING", "REPAIRING"))
#: States of instances that are shut down.
DOWN = frozenset(("STOPPED", "SUSPENDED", "TERMINATED"))

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
T = TypeVar("T")

_PROVIDER_ID = re.compile(r"gce://([^/]+)/([^/]+)/([^/]+)")


class Machines:
    """The instances that the configuration selects; *project* returns the project's ID."""

    def __init__(self, compute: Compute, config: GCEConfig, project: Callable[[], Awaitable[str]]) -> None:
        self._compute = compute
        self._config = config
        self.project = project

    async def all(self, read: Callable[[Resource], T], *, metadata: bool = False) -> list[T]:
        """Return the results of *read* for all instances, with their *metadata* if set, sorted by name."""

        def read_if_selected(instance: Resource) -> tuple[str, str, T] | None:
            if not self._is_selected(instance):
                return None
            return instance["name"], instance["zone"], read(instance)

        prefix = self._config.prefix
        # A regular expression, where a dot matches any character: `_is_selected` checks again.
        name_filter = f'name eq "{prefix}.*"' if prefix else ""
        found = await self._compute.instances(
            self._only_zone, name_filter, read_if_selected, metadata=metadata
        )
        found.sort(key=itemgetter(0, 1))
        return [each for _, _, each in found]

    async def named(self, name: str) -> Resource:
        """Return the instance of a node.

        :param name: of the instance, or a DNS name that begins with it.
        :raise InstanceNotFound: there is none.
        """
        short = name.partition(".")[0]
        if not _NAME.fullmatch(short):
            raise InstanceNotFound

        def read(instance: Resource) -> Resource | None:
            return instance if instance["name"] == short and self._is_selected(instance) else None

        for each in await self._compute.instances(self._only_zone, f'name eq "{short}"', read):
            return each
        raise InstanceNotFound

    async def identified(self, provider_id: str) -> Resource:
        """Return the instance ``gce://<project>/<zone>/<name>``.

        :raise InstanceNotFound: there is none.
        :raise CloudError: it is in another project.
        """
        project, zone, name = split_provider_id(provider_id)
        if project != await self.project():
            raise CloudError(f"{provider_id[:200]} is not in the project {await self.project()}")
        return await self._compute.instance(zone, name)

    def addresses(self, instance: Resource) -> tuple[NodeAddress, ...]:
        """Return the distinct addresses of an instance, internal ones first."""
        interfaces = instance.get("networkInterfaces") or []
        network = self._config.network
        selected = [each for each in interfaces if _last(each.get("network")) == network]
        found = [address for each in selected or interfaces for address in _addresses(each)]
        found.sort(key=lambda address: address.type != INTERNAL_IP)
        return tuple(dict.fromkeys(found))

    @property
    def _only_zone(self) -> str:
        return "" if self._config.many_zones else self._config.zone

    def _is_selected(self, instance: Resource) -> bool:
        config = self._config
        tags = (instance.get("tags") or {}).get("items") or ()
        return (
            instance["name"].startswith(config.prefix)
            and (not config.tags or not config.tags.isdisjoint(tags))
            and (not config.region or zone_of(instance).region == config.region)
        )


@define(eq=False, repr=False, slots=False)
class GCEInstances(CloudMachines):
    """The instances of a project."""

    _machines: Machines
    _installer: KeyInstaller
    _config: GCEConfig
    _metadata: MetadataService

    async def by_name(self, name: str) -> Instance:
        """See `CloudMachines`."""
        return self._read(await self._machines.named(name), await self._machines.project())

    async def by_provider_id(self, provider_id: str) -> Instance:
        """See `CloudMachines`."""
        return self._read(await self._machines.identified(provider_id), await self._machines.project())

    async def install_key(self, user: str, key: bytes) -> None:
        """See `KeyInstaller.install`."""
        await self._installer.install(user, key)

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        return (await self._machines.identified(provider_id)).get("status") in DOWN

    async def list_instances(self) -> list[Instance]:
        """See `IInstances`."""
        project = await self._machines.project()
        return await self._machines.all(lambda instance: self._read(instance, project))

    async def get_zone(self) -> Zone:
        """Return the zone of the configuration, or of this machine."""
        return _zone(self._config.zone or await self._metadata.zone())

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """Return the zone in the provider ID."""
        return _zone(split_provider_id(provider_id)[1])

    def _read(self, instance: Resource, project: str) -> Instance:
        zone = zone_of(instance)
        return Instance(
            name=instance["name"],
            provider_id=f"gce://{project}/{zone.failure_domain}/{instance['name']}",
            addresses=self._machines.addresses(instance),
            type=_last(instance.get("machineType")),
            zone=zone,
            running=instance.get("status") in UP,
        )


def split_provider_id(provider_id: str) -> tuple[str, str, str]:
    """Return project, zone and name; raise `CloudError` if the provider ID is not valid."""
    match = _PROVIDER_ID.fullmatch(provider_id)
    if match is None:
        raise CloudError(f"provider id {provider_id[:200]!r}: must be gce://<project>/<zone>/<name>")
    return match[1], match[2], match[3]


def zone_of(instance: Resource) -> Zone:
    """Return the zone of an instance."""
    return _zone(_last(instance.get("zone")))


def _zone(name: str) -> Zone:
    return Zone(name, name.rpartition("-")[0])


def _last(url: object) -> str:
    """Return the last part of a resource's URL."""
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
