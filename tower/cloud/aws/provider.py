"""The cloud provider ``aws``: EC2's instances, and keys with EC2 Instance Connect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from tower.cloud.aws.config import AWSConfig, Filter, read_aws_config
from tower.cloud.aws.instances import INSTANCE_ID, EC2Instance, instance_id_of, region_of
from tower.cloud.aws.keys import KEY_LIFE, InstanceConnect
from tower.cloud.aws.metadata import Metadata
from tower.cloud.aws.region import Region
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudError, InstanceNotFound
from tower.cloud.gcfg import parse
from tower.cloud.interfaces import Instance, ISSHKeyLease, Zone
from tower.cloud.provider import CloudMachines, Provider
from tower.cloud.session import CloudSession
from tower.reactor.clock import TimeOfDay
from tower.reactor.cooperate import map_cooperatively
from tower.reactor.interfaces import IReactor

_EXISTING = ("instance-state-name", ("pending", "running", "stopping", "stopped"))


def make(config: ConfigText | None) -> AWS:
    """Return the provider for a configuration; None: the defaults.

    :raise CloudConfigError: with file and line.
    """
    return AWS(AWSConfig() if config is None else read_aws_config(parse(config)))


@define(eq=False, repr=False, slots=False)
class AWS(Provider["AWSInstances"]):
    """See `ICloudProvider`.

    :param environ: may have credentials and the region.
    :param key_life: how long EC2 offers a key to an instance, s.
    :param time_of_day: its ``seconds()`` count from the epoch; None: the system's.
    """

    name = "aws"

    _config: AWSConfig
    _environ: Mapping[str, str] = field(default=os.environ, kw_only=True)
    _key_life: float = field(default=KEY_LIFE, kw_only=True)
    _time_of_day: IReactorTime | None = field(default=None, kw_only=True)

    def open_session(self, reactor: IReactor) -> CloudSession:
        """See `Provider`."""
        ca_file = self._environ.get("AWS_CA_BUNDLE", "")
        return CloudSession(reactor, ca_file=ca_file, environ=self._environ)

    def compose(self, reactor: IReactor, session: CloudSession) -> AWSInstances:
        """See `Provider.compose`."""
        clock = self._time_of_day or TimeOfDay(reactor)
        metadata = Metadata(session, reactor, self._config.metadata_in(self._environ))
        region = Region(self._config, self._environ, session, reactor, clock, metadata)
        return AWSInstances(region, reactor, self._key_life)

    def has_cluster_id(self) -> bool:
        """See `ICloudProvider`."""
        return bool(self._config.cluster_id or self._config.cluster_tag)


@implementer(ISSHKeyLease)
class AWSInstances(CloudMachines):
    """The instances of one region; a node's name is its private DNS name."""

    def __init__(self, region: Region, clock: IReactorTime, key_life: float) -> None:
        super().__init__()
        self._region = region
        self._clock = clock
        self._keys = InstanceConnect(clock, region.instance_connect, self._list, key_life)

    async def by_name(self, name: str) -> Instance:
        """See `CloudMachines`."""
        if INSTANCE_ID.fullmatch(name):
            return (await (await self._region.ec2()).instance(name)).as_instance()
        filters: list[Filter] = [("private-dns-name", (name,)), _EXISTING, *self._region.config.selection]
        found = await (await self._region.ec2()).instances(filters)
        if not found:
            raise InstanceNotFound
        if len(found) > 1:
            raise CloudError(f"multiple instances found for name: {name}")
        return found[0].as_instance()

    async def by_provider_id(self, provider_id: str) -> Instance:
        """See `CloudMachines`."""
        return (await self._get(provider_id)).as_instance()

    async def install_key(self, user: str, key: bytes) -> None:
        """See `CloudMachines`: each instance has the key for 60 s; `prepare_dial` renews it."""
        await self._keys.push_to_all(user, key)

    async def prepare_dial(self, user: str, key: bytes, host: str) -> None:
        """See `ISSHKeyLease`."""
        await self.tasks.run(self._keys.prepare(user, key, host))

    async def current_node_name(self, hostname: str) -> str:
        """Return EC2's private DNS name of this instance."""
        return await self._region.metadata.get("local-hostname") or hostname

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        try:
            return (await self._get(provider_id)).state != "terminated"
        except InstanceNotFound:
            return False

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        return (await self._get(provider_id)).is_off

    async def list_instances(self) -> Sequence[Instance]:
        """See `IInstances`."""
        found = await self._list()
        await self._keys.saw(found)
        return await map_cooperatively(self._clock, found, EC2Instance.as_instance)

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        zone = self._region.config.zone or await self._region.metadata.get("placement/availability-zone")
        return Zone(zone, region_of(zone))

    async def _get(self, provider_id: str) -> EC2Instance:
        return await (await self._region.ec2()).instance(instance_id_of(provider_id))

    async def _list(self) -> list[EC2Instance]:
        selection = self._region.config.selection
        if not selection:
            raise CloudError(
                "no instances are selected: set KubernetesClusterID, KubernetesClusterTag, VPC, SubnetID or "
                "InstanceFilter"
            )
        return await (await self._region.ec2()).instances([*selection, _EXISTING])
