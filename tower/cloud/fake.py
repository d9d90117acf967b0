"""Fake cloud provider for tests.

In a test's own process, use `FakeCloud`: its attributes are the responses, and it records calls::

    cloud = FakeCloud(machines=[Instance("node-1", "fake://node-1")])
    register_cloud_provider("mine", lambda config: cloud)
    ...
    self.assertEqual(cloud.calls, ["list"])

For other processes, use ``--cloud-provider fake --cloud-config FILE``; see `tower.cloud.fake_fleet` for the
file, which is reread for each call, so a test can change it.

Differences from upstream's fake: it has machines, raises `InstanceNotFound` for missing ones, and
`add_ssh_key_to_all_instances`, which is ``unimplemented`` there, installs keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from zope.interface import implementer

from tower.cloud.config.text import ConfigText, read_config
from tower.cloud.errors import CloudError, InstanceNotFound
from tower.cloud.fake_fleet import Fleet, install_key, read_fleet
from tower.cloud.fake_network import FakeNetwork
from tower.cloud.interfaces import (
    ICloudProvider,
    IClusters,
    IInstances,
    ILoadBalancer,
    Instance,
    IRoutes,
    IZones,
    NodeAddress,
    Zone,
)
from tower.errors import ConfigurationError


def make(config: ConfigText | None) -> FakeCloud:
    """Return the fake cloud; None: it has no machines.  Raise `CloudConfigError` with file and line."""
    if config is None:
        return FakeCloud()
    path = config.path
    fleet = read_fleet(config)
    cloud = FakeCloud(read=lambda: read_fleet(read_config(path)))
    cloud.apply(fleet)
    return cloud


@implementer(ICloudProvider, IInstances, IZones, IClusters)
@define(eq=False, kw_only=True)
class FakeCloud:
    """A cloud with instances, zones and clusters in one object.

    :ivar machines: the machines; while there are none, `addresses`, `instance_ids`, `instance_types`,
        `exists` and `shutdown` are returned.
    :ivar error: raised by every call.
    :ivar errors: raised by calls, by their names in `calls`.
    :ivar instance_id_errors: raised by `instance_id`, by node name.
    :ivar request_delay: delay of recorded calls, s.
    :ivar authorized_keys: path for keys, see `tower.cloud.fake_fleet.install_key`; empty: they are not
        written.
    :ivar read: returns the current configuration; None: the attributes stay unchanged.
    :ivar network: routes and load balancers.
    :ivar calls: names of the recorded calls, in order.
    :ivar keys: installed users and keys, in order.
    """

    provider: str = "fake"
    machines: list[Instance] = field(factory=list)
    addresses: list[NodeAddress] = field(factory=list)
    instance_ids: dict[str, str] = field(factory=dict)
    instance_id_errors: dict[str, Exception] = field(factory=dict)
    instance_types: dict[str, str] = field(factory=dict)
    exists: bool = False
    shutdown: bool = False
    zone: Zone = field(factory=Zone)
    cluster_list: list[str] = field(factory=list)
    master_name: str = ""
    volume_labels: dict[str, dict[str, str]] = field(factory=dict)
    error: Exception | None = None
    errors: dict[str, Exception] = field(factory=dict)
    disable_instances: bool = False
    disable_zones: bool = False
    disable_clusters: bool = False
    disable_routes: bool = False
    disable_load_balancers: bool = False
    request_delay: float = 0.0
    authorized_keys: str = ""
    read: Callable[[], Fleet] | None = None
    calls: list[str] = field(factory=list)
    keys: list[tuple[str, bytes]] = field(factory=list)
    network: FakeNetwork = field(init=False)
    _reactor: Any = field(init=False, default=None)
    _delays: set[Deferred[None]] = field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        """Create the network."""
        self.network = FakeNetwork(self._record, self.get_zone)

    def clear_calls(self) -> None:
        """Forget the recorded calls."""
        self.calls.clear()

    def apply(self, fleet: Fleet) -> None:
        """Apply a configuration."""
        self.machines = list(fleet.machines)
        self.authorized_keys = fleet.authorized_keys
        self.request_delay = fleet.delay
        self.zone = fleet.zone
        error = CloudError("the fake cloud fails, as configured")
        self.errors = dict.fromkeys(fleet.failing, error)

    # ICloudProvider

    def provider_name(self) -> str:
        """See ICloudProvider."""
        return self.provider

    def initialize(self, reactor: Any) -> None:
        """See ICloudProvider; required for delays."""
        self._reactor = reactor

    def stop(self) -> None:
        """See ICloudProvider."""
        for delay in list(self._delays):
            delay.cancel()

    def instances(self) -> IInstances | None:
        """See ICloudProvider."""
        return None if self.disable_instances else self

    def zones(self) -> IZones | None:
        """See ICloudProvider."""
        return None if self.disable_zones else self

    def clusters(self) -> IClusters | None:
        """See ICloudProvider."""
        return None if self.disable_clusters else self

    def routes(self) -> IRoutes | None:
        """See ICloudProvider."""
        return None if self.disable_routes else self.network

    def load_balancer(self) -> ILoadBalancer | None:
        """See ICloudProvider."""
        return None if self.disable_load_balancers else self.network

    def has_cluster_id(self) -> bool:
        """See ICloudProvider."""
        return True

    # IInstances

    async def node_addresses(self, name: str) -> Sequence[NodeAddress]:
        """See IInstances."""
        await self._record("node-addresses")
        machine = self._machine(name)
        return self.addresses if machine is None else machine.addresses

    async def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[NodeAddress]:
        """See IInstances."""
        await self._record("node-addresses-by-provider-id")
        machine = self._machine_by_id(provider_id)
        return self.addresses if machine is None else machine.addresses

    async def instance_id(self, name: str) -> str:
        """See IInstances."""
        await self._record("instance-id")
        if name in self.instance_id_errors:
            raise self.instance_id_errors[name]
        machine = self._machine(name)
        if machine is not None:
            return machine.provider_id.partition("://")[2]
        return self._known(self.instance_ids, name)

    async def instance_type(self, name: str) -> str:
        """See IInstances."""
        await self._record("instance-type")
        machine = self._machine(name)
        return self._known(self.instance_types, name) if machine is None else machine.type

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        """See IInstances."""
        await self._record("instance-type-by-provider-id")
        machine = self._machine_by_id(provider_id)
        return self._known(self.instance_types, provider_id) if machine is None else machine.type

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """See IInstances; without `authorized_keys`, the key is only recorded."""
        await self._record("add-ssh-key-to-all-instances")
        if self.authorized_keys:
            install_key(self.authorized_keys, user, key, tuple(self.machines))
        self.keys.append((user, key))

    async def current_node_name(self, hostname: str) -> str:
        """See IInstances; it is *hostname*."""
        return hostname

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See IInstances."""
        await self._record("instance-exists-by-provider-id")
        if not self.machines:
            return self.exists
        return any(machine.provider_id == provider_id for machine in self.machines)

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See IInstances."""
        await self._record("instance-shutdown-by-provider-id")
        if not provider_id:
            raise CloudError("cannot shutdown instance with empty providerID")
        machine = self._machine_by_id(provider_id)
        return self.shutdown if machine is None else not machine.running

    async def list_instances(self) -> Sequence[Instance]:
        """See IInstances."""
        await self._record("list")
        return list(self.machines)

    # IZones

    async def get_zone(self) -> Zone:
        """See IZones."""
        await self._record("get-zone")
        return self.zone

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """See IZones."""
        await self._record("get-zone-by-provider-id")
        machine = self._machine_by_id(provider_id)
        return self.zone if machine is None else machine.zone

    async def get_zone_by_node_name(self, name: str) -> Zone:
        """See IZones."""
        await self._record("get-zone-by-node-name")
        machine = self._machine(name)
        return self.zone if machine is None else machine.zone

    # IClusters

    async def list_clusters(self) -> Sequence[str]:
        """See IClusters."""
        await self._record("")
        return list(self.cluster_list)

    async def master(self, cluster: str) -> str:
        """See IClusters."""
        await self._record("")
        return self.master_name

    # Not in an interface

    async def labels_for_volume(self, name: str) -> dict[str, str]:
        """Return the labels of a volume."""
        if name not in self.volume_labels:
            raise CloudError("label not found for volume")
        return self.volume_labels[name]

    async def _record(self, call: str) -> None:
        """Record a call with a name; delay it; raise the configured error."""
        if call:
            self.calls.append(call)
        if self.read is not None:
            try:
                self.apply(self.read())
            except ConfigurationError as e:
                raise CloudError(str(e)) from None
            except OSError as e:
                raise CloudError(f"the fake cloud's configuration cannot be read: {e.strerror}") from None
        if self.request_delay and self._reactor is not None:
            delay: Deferred[None] = deferLater(self._reactor, self.request_delay)
            self._delays.add(delay)
            try:
                await delay
            finally:
                self._delays.discard(delay)
        error = self.error or self.errors.get(call) or self.errors.get("all")
        if error is not None:
            raise error

    def _machine(self, name: str) -> Instance | None:
        """Return a machine by name; None: there are no machines."""
        return self._find([machine for machine in self.machines if machine.name == name])

    def _machine_by_id(self, provider_id: str) -> Instance | None:
        return self._find([machine for machine in self.machines if machine.provider_id == provider_id])

    def _find(self, found: Sequence[Instance]) -> Instance | None:
        if self.machines and not found:
            raise InstanceNotFound
        return found[0] if found else None

    @staticmethod
    def _known(mapping: Mapping[str, str], name: str) -> str:
        if name not in mapping:
            raise InstanceNotFound
        return mapping[name]
