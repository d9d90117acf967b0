"""The cloud provider ``azure``: machines of a resource group, and keys with the VMAccess extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define
from twisted.internet.interfaces import IReactorTime

from tower.cloud.azure.arm import AzureError, ResourceManager
from tower.cloud.azure.config import AzureConfig, read_azure_config
from tower.cloud.azure.inventory import COMPUTE, Inventory
from tower.cloud.azure.keys import VMAccess
from tower.cloud.azure.machines import Machine, path_of, read_machine, zone_of
from tower.cloud.azure.tokens import Tokens, read_compute
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError, InstanceNotFound
from tower.cloud.interfaces import Instance, Zone
from tower.cloud.provider import CloudMachines, Provider
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import map_cooperatively
from tower.reactor.interfaces import IReactor

_GONE = frozenset(("instanceidnotfound", "notfound", "resourcegroupnotfound", "resourcenotfound"))


def make(config: ConfigText | None) -> Azure:
    """Return the provider for a configuration; raise `CloudConfigError` if it is missing or invalid."""
    if config is None:
        raise CloudConfigError("azure", 0, "--cloud-config with subscriptionId and resourceGroup is required")
    return Azure(read_azure_config(config))


@define(eq=False, repr=False, slots=False)
class Azure(Provider["AzureInstances"]):
    """See `ICloudProvider`; the resource group is the cluster."""

    name = "azure"

    _config: AzureConfig

    def compose(self, reactor: IReactor, session: CloudSession) -> AzureInstances:
        """See `Provider.compose`."""
        token: RefreshedToken[str] = RefreshedToken(reactor, Tokens(session, self._config, self._now).fetch)
        manager = ResourceManager(session, reactor, self._config.manager, token)
        inventory = Inventory(manager, reactor, self._config)
        keys = VMAccess(manager, inventory.look)
        return AzureInstances(session, manager, inventory, self._config, reactor, keys)


@define(eq=False, repr=False, slots=False)
class AzureInstances(CloudMachines):
    """The machines; a node's name is its machine's, in scale sets its host name."""

    _session: CloudSession
    _manager: ResourceManager
    _inventory: Inventory
    _config: AzureConfig
    _clock: IReactorTime
    _keys: VMAccess

    async def by_name(self, name: str) -> Instance:
        """See `CloudMachines`."""
        found = await self._inventory.find(lambda machine: machine.name.lower() == name.lower())
        return found.as_instance()

    async def by_provider_id(self, provider_id: str) -> Instance:
        """See `CloudMachines`."""
        key = path_of(provider_id, self._config.subscription).lower()
        return (await self._inventory.find(lambda machine: machine.key == key)).as_instance()

    async def install_key(self, user: str, key: bytes) -> None:
        """See `CloudMachines`: takes minutes for each new key; the user gets full sudo rights."""
        await self._keys.install(user, key)

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`; does not use the cache."""
        try:
            await self._get(provider_id, COMPUTE)
        except InstanceNotFound:
            return False
        return True

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`; does not use the cache."""
        resource = await self._get(provider_id, f"{COMPUTE}&$expand=instanceView")
        return read_machine(resource).is_off

    async def list_instances(self) -> Sequence[Instance]:
        """See `IInstances`."""
        return await map_cooperatively(self._clock, await self._inventory.recent(), Machine.as_instance)

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        compute = await read_compute(self._session, self._config)
        return zone_of(str(compute.get("location") or self._config.location), str(compute.get("zone") or ""))

    async def _get(self, provider_id: str, query: str) -> dict[str, Any]:
        try:
            return await self._manager.get(path_of(provider_id, self._config.subscription), query)
        except AzureError as e:
            if e.status == 404 and e.code.lower() in _GONE:
                raise InstanceNotFound from None
            raise
