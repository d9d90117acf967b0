"""Base classes of Tower's providers: a session, and instances and zones from two lookups."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from attrs import define, field
from zope.interface import implementer

from tower.cloud.errors import CloudError, InstanceNotFound
from tower.cloud.interfaces import ICloudProvider, IInstances, Instance, IZones, NodeAddress, Zone
from tower.cloud.session import CancellableTasks, CloudSession
from tower.reactor.interfaces import IReactor


@implementer(IInstances, IZones)
@define(eq=False, repr=False, slots=False)
class CloudMachines:
    """`IInstances` and `IZones` of one cloud.  Override what raises ``NotImplementedError``.

    :ivar tasks: installations of keys in progress.
    """

    tasks: CancellableTasks = field(factory=CancellableTasks, init=False)

    def stop(self) -> None:
        """Cancel installations of keys."""
        self.tasks.stop()

    async def by_name(self, name: str) -> Instance:
        """Return the machine of a node; raise `InstanceNotFound` if there is none."""
        raise NotImplementedError

    async def by_provider_id(self, provider_id: str) -> Instance:
        """Return a machine; raise `InstanceNotFound` if there is none."""
        raise NotImplementedError

    async def list_instances(self) -> Sequence[Instance]:
        """See `IInstances`."""
        raise NotImplementedError

    async def install_key(self, user: str, key: bytes) -> None:
        """See `IInstances.add_ssh_key_to_all_instances`."""
        raise NotImplementedError

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        raise NotImplementedError

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        raise NotImplementedError

    async def node_addresses(self, name: str) -> Sequence[NodeAddress]:
        """See `IInstances`."""
        return (await self.by_name(name)).addresses

    async def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[NodeAddress]:
        """See `IInstances`."""
        return (await self.by_provider_id(provider_id)).addresses

    async def instance_id(self, name: str) -> str:
        """See `IInstances`."""
        return (await self.by_name(name)).provider_id.partition("://")[2]

    async def instance_type(self, name: str) -> str:
        """See `IInstances`."""
        return (await self.by_name(name)).type

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        """See `IInstances`."""
        return (await self.by_provider_id(provider_id)).type

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """See `IInstances`; `stop` cancels it."""
        await self.tasks.run(self.install_key(user, key))

    async def current_node_name(self, hostname: str) -> str:
        """Return *hostname*."""
        return hostname

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        try:
            await self.by_provider_id(provider_id)
        except InstanceNotFound:
            return False
        return True

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """See `IZones`."""
        return (await self.by_provider_id(provider_id)).zone

    async def get_zone_by_node_name(self, name: str) -> Zone:
        """See `IZones`."""
        return (await self.by_name(name)).zone


Machines = TypeVar("Machines", bound=CloudMachines)


@implementer(ICloudProvider)
@define(eq=False, repr=False, slots=False)
class Provider(Generic[Machines]):
    """A cloud with instances and zones, without clusters, routes and load balancers.

    :cvar name: the provider's.
    :param ask: returns a session for a reactor; None: `open_session`.
    :param now: returns s since the epoch.
    """

    name: ClassVar[str]

    _ask: Callable[[IReactor], CloudSession] | None = field(default=None, kw_only=True)
    _now: Callable[[], float] = field(default=time.time, kw_only=True)
    _session: CloudSession | None = field(default=None, init=False)
    _machines: Machines | None = field(default=None, init=False)

    def open_session(self, reactor: IReactor) -> CloudSession:
        """Return a session that verifies HTTPS.  Override if the configuration has settings for it."""
        return CloudSession(reactor, now=self._now)

    def compose(self, reactor: IReactor, session: CloudSession) -> Machines:
        """Return the machines.  Override."""
        raise NotImplementedError

    def provider_name(self) -> str:
        """See `ICloudProvider`."""
        return self.name

    def initialize(self, reactor: IReactor) -> None:
        """See `ICloudProvider`."""
        self._session = session = (self._ask or self.open_session)(reactor)
        self._machines = self.compose(reactor, session)

    def stop(self) -> None:
        """See `ICloudProvider`."""
        if self._machines is not None:
            self._machines.stop()
        if self._session is not None:
            self._session.stop()

    def instances(self) -> Machines:
        """See `ICloudProvider`."""
        if self._machines is None:
            raise CloudError("the provider is not initialized")
        return self._machines

    def zones(self) -> Machines:
        """See `ICloudProvider`."""
        return self.instances()

    def clusters(self) -> None:
        """Not supported."""

    def routes(self) -> None:
        """Not supported."""

    def load_balancer(self) -> None:
        """Not supported."""

    def has_cluster_id(self) -> bool:
        """See `ICloudProvider`.  Override if it may be unknown."""
        return True
