"""The cloud provider ``aws``: EC2's instances, and keys by EC2 Instance Connect."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from tower.cloud.aws.config import AWSConfig, Filter, read_aws_config
from tower.cloud.aws.instances import INSTANCE_ID, EC2Instance, instance_id_of, region_of
from tower.cloud.aws.keys import KEY_LIFE, InstanceConnect
from tower.cloud.aws.metadata import Metadata
from tower.cloud.aws.region import Region
from tower.cloud.config.gcfg import parse
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudError, InstanceNotFound
from tower.cloud.http.tasks import CancellableTasks
from tower.cloud.interfaces import (
    IInstances,
    Instance,
    ISSHKeyLease,
    IZones,
    NodeAddress,
    Zone,
)
from tower.cloud.provider import Provider
from tower.cloud.session import CloudSession
from tower.reactor.clock import TimeOfDay
from tower.reactor.cooperate import map_cooperatively

_THERE = ("instance-state-name", ("pending", "running", "stopping", "stopped"))


def make(config: ConfigText | None) -> AWS:
    """Return the provider for a configuration; without one, all is found out from where we are.

    :raise CloudConfigError: with file and line.
    """
    return AWS(AWSConfig() if config is None else read_aws_config(parse(config)))


class AWS(Provider["AWSInstances", "AWSZones"]):
    """See `ICloudProvider`.

    :param environ: where credentials and the region may be.
    :param ask: makes a session for a reactor; None: one that verifies HTTPS.
    :param key_life: how long the cloud keeps a key on an instance, s.
    :param time_of_day: its ``seconds()`` count from the epoch; None: this machine's.
    """

    name = "aws"

    def __init__(
        self,
        config: AWSConfig,
        *,
        environ: Mapping[str, str] = os.environ,
        ask: Callable[[Any], CloudSession] | None = None,
        key_life: float = KEY_LIFE,
        time_of_day: IReactorTime | None = None,
    ) -> None:
        super().__init__()
        self._config = config
        self._environ = environ
        self._ask = ask
        self._key_life = key_life
        self._time_of_day = time_of_day

    def session(self, reactor: Any) -> CloudSession:
        """See `Provider.session`."""
        if self._ask is not None:
            return self._ask(reactor)
        authorities = self._environ.get("AWS_CA_BUNDLE", "")
        return CloudSession(reactor, ca_file=authorities, environ=self._environ)

    def compose(self, reactor: Any, session: CloudSession) -> tuple[AWSInstances, AWSZones]:
        """See `Provider.compose`."""
        clock = self._time_of_day or TimeOfDay(reactor)
        metadata = Metadata(session, reactor, self._config.metadata_in(self._environ))
        region = Region(self._config, self._environ, session, reactor, clock, metadata)
        instances = AWSInstances(region, reactor, self._key_life)
        return instances, AWSZones(region, instances)

    def stop(self) -> None:
        """See `ICloudProvider`."""
        if self.is_initialized:
            self.instances().stop()
        super().stop()

    def has_cluster_id(self) -> bool:
        """See `ICloudProvider`."""
        return bool(self._config.cluster_id or self._config.cluster_tag)


@implementer(IInstances, ISSHKeyLease)
class AWSInstances:
    """See `IInstances` and `ISSHKeyLease`; nodes are called by their private DNS names."""

    def __init__(self, region: Region, clock: IReactorTime, key_life: float) -> None:
        self._region = region
        self._clock = clock
        self._keys = InstanceConnect(clock, region.instance_connect, self._look, key_life)
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
        return (await self.by_name(name)).provider_id.removeprefix("aws://")

    async def instance_type(self, name: str) -> str:
        """See `IInstances`."""
        return (await self.by_name(name)).type

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        """See `IInstances`."""
        return (await self.by_provider_id(provider_id)).type

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """See `IInstances`: each instance has the key for 60 s; `prepare_dial` has it renewed."""
        await self._under_way.do(self._keys.push_to_all(user, key))

    async def prepare_dial(self, user: str, key: bytes, host: str) -> None:
        """See `ISSHKeyLease`."""
        await self._under_way.do(self._keys.prepare(user, key, host))

    async def current_node_name(self, hostname: str) -> str:
        """See `IInstances`: EC2's private DNS name, whatever *hostname* is."""
        return await self._region.metadata.get("local-hostname") or hostname

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        try:
            found = await self.by_provider_id(provider_id)
        except InstanceNotFound:
            return False
        return found.state != "terminated"

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        return (await self.by_provider_id(provider_id)).is_off

    async def list_instances(self) -> Sequence[Instance]:
        """See `IInstances`."""
        found = await self._look()
        await self._keys.saw(found)
        return await map_cooperatively(self._clock, found, EC2Instance.as_instance)

    async def by_name(self, name: str) -> EC2Instance:
        """Return the instance of a node.

        :raise InstanceNotFound: there is none.
        """
        if INSTANCE_ID.fullmatch(name):
            return await (await self._region.ec2()).instance(name)
        filters: list[Filter] = [("private-dns-name", (name,)), _THERE, *self._region.config.selection]
        found = await (await self._region.ec2()).instances(filters)
        if not found:
            raise InstanceNotFound
        if len(found) > 1:
            raise CloudError(f"multiple instances found for name: {name}")
        return found[0]

    async def by_provider_id(self, provider_id: str) -> EC2Instance:
        """Return an instance.

        :raise InstanceNotFound: there is none.
        """
        return await (await self._region.ec2()).instance(instance_id_of(provider_id))

    async def _look(self) -> list[EC2Instance]:
        chosen = self._region.config.selection
        if not chosen:
            raise CloudError(
                "nothing says which instances are the cluster's: "
                "set KubernetesClusterID, KubernetesClusterTag, VPC, SubnetID or InstanceFilter"
            )
        return await (await self._region.ec2()).instances([*chosen, _THERE])


@implementer(IZones)
class AWSZones:
    """See `IZones`."""

    def __init__(self, region: Region, instances: AWSInstances) -> None:
        self._region = region
        self._instances = instances

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        zone = self._region.config.zone or await self._region.metadata.get("placement/availability-zone")
        return Zone(zone, region_of(zone))

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """See `IZones`."""
        return (await self._instances.by_provider_id(provider_id)).as_instance().zone

    async def get_zone_by_node_name(self, name: str) -> Zone:
        """See `IZones`."""
        return (await self._instances.by_name(name)).as_instance().zone
