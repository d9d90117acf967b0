"""The cloud provider ``azure``: machines of a resource group, and keys by the extension VMAccess."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from tower.cloud.azure.arm import AzureError, ResourceManager
from tower.cloud.azure.config import AzureConfig, read_azure_config
from tower.cloud.azure.inventory import COMPUTE, Inventory
from tower.cloud.azure.keys import VMAccess
from tower.cloud.azure.machines import Machine, path_of, read_machine, zone_of
from tower.cloud.azure.tokens import Tokens, read_compute
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError, InstanceNotFound
from tower.cloud.http.tasks import CancellableTasks
from tower.cloud.interfaces import IInstances, Instance, IZones, NodeAddress, Zone
from tower.cloud.provider import Provider
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken
from tower.reactor.cooperate import map_cooperatively

_GONE = frozenset(("instanceidnotfound", "notfound", "resourcegroupnotfound", "resourcenotfound"))


def make(config: ConfigText | None) -> Azure:
    """Return the provider for a configuration.

    :raise CloudConfigError: with file and line; or there is none.
    """
    if config is None:
        raise CloudConfigError("azure", 0, "a configuration with subscriptionId and resourceGroup is needed")
    return Azure(read_azure_config(config))


class Azure(Provider["AzureInstances", "AzureZones"]):
    """See `ICloudProvider`; the resource group is the cluster.

    :param ask: makes a session for a reactor.
    :param now: tells the time, s since the epoch.
    """

    name = "azure"

    def __init__(
        self,
        config: AzureConfig,
        *,
        ask: Callable[[Any], CloudSession] = CloudSession,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._now = now
        self._config = config
        self._ask = ask

    def session(self, reactor: Any) -> CloudSession:
        """See `Provider.session`."""
        return self._ask(reactor)

    def compose(self, reactor: Any, session: CloudSession) -> tuple[AzureInstances, AzureZones]:
        """See `Provider.compose`."""
        token: RefreshedToken[str] = RefreshedToken(reactor, Tokens(session, self._config, self._now).fetch)
        manager = ResourceManager(session, reactor, self._config.manager, token)
        instances = AzureInstances(manager, Inventory(manager, reactor, self._config), self._config, reactor)
        return instances, AzureZones(instances, session, self._config)

    def stop(self) -> None:
        """See `ICloudProvider`."""
        if self.is_initialized:
            self.instances().stop()
        super().stop()


@implementer(IInstances)
class AzureInstances:
    """See `IInstances`; nodes are called as their machines, those of scale sets as their host names."""

    def __init__(
        self, manager: ResourceManager, inventory: Inventory, config: AzureConfig, clock: IReactorTime
    ) -> None:
        self._manager = manager
        self._inventory = inventory
        self._config = config
        self._clock = clock
        self._keys = VMAccess(manager, inventory.look)
        self._under_way = CancellableTasks()

    def stop(self) -> None:
        """Install no more keys."""
        self._under_way.stop()

    async def node_addresses(self, name: str) -> Sequence[NodeAddress]:
        """See `IInstances`."""
        return (await self.by_name(name)).addresses

    async def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[NodeAddress]:
        """See `IInstances`."""
        return (await self.by_provider_id(provider_id)).addresses

    async def instance_id(self, name: str) -> str:
        """See `IInstances`."""
        return (await self.by_name(name)).id

    async def instance_type(self, name: str) -> str:
        """See `IInstances`."""
        return (await self.by_name(name)).size

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        """See `IInstances`."""
        return (await self.by_provider_id(provider_id)).size

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """See `IInstances`: takes minutes for each new key; the user may do everything, by sudo."""
        await self._under_way.do(self._keys.install(user, key))

    async def current_node_name(self, hostname: str) -> str:
        """See `IInstances`."""
        return hostname

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        try:
            await self._get(provider_id, COMPUTE)
        except InstanceNotFound:
            return False
        return True

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        said = await self._get(provider_id, f"{COMPUTE}&$expand=instanceView")
        return read_machine(said).is_off

    async def list_instances(self) -> Sequence[Instance]:
        """See `IInstances`."""
        return await map_cooperatively(self._clock, await self._inventory.recent(), Machine.as_instance)

    async def by_name(self, name: str) -> Machine:
        """Return the machine of a node.

        :raise InstanceNotFound: there is none.
        """
        return await self._inventory.find(lambda machine: machine.name.lower() == name.lower())

    async def by_provider_id(self, provider_id: str) -> Machine:
        """Return a machine.

        :raise InstanceNotFound: there is none.
        """
        key = path_of(provider_id, self._config.subscription).lower()
        return await self._inventory.find(lambda machine: machine.key == key)

    async def _get(self, provider_id: str, query: str) -> dict[str, Any]:
        try:
            return await self._manager.get(path_of(provider_id, self._config.subscription), query)
        except AzureError as e:
            if e.status == 404 and e.code.lower() in _GONE:
                raise InstanceNotFound from None
            raise


@implementer(IZones)
class AzureZones:
    """See `IZones`."""

    def __init__(self, instances: AzureInstances, session: CloudSession, config: AzureConfig) -> None:
        self._instances = instances
        self._session = session
        self._config = config

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        said = await read_compute(self._session, self._config)
        return zone_of(str(said.get("location") or self._config.location), str(said.get("zone") or ""))

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """See `IZones`."""
        return (await self._instances.by_provider_id(provider_id)).in_zone

    async def get_zone_by_node_name(self, name: str) -> Zone:
        """See `IZones`."""
        return (await self._instances.by_name(name)).in_zone
