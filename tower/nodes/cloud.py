"""The cloud of one cluster, if it has one, which lists its nodes and has the key let in there."""

from __future__ import annotations

from typing import Any

from tower.cloud.interfaces import IInstances, ISSHKeyLease
from tower.cloud.registry import init_cloud_provider
from tower.clusters.ssh_spec import SSHSpec
from tower.nodes.record_files import RecordFile
from tower.nodes.tunneler import Install


class NodeCloud:
    """:param config: the file of its configuration; looked at only if *spec* names one.
    :ivar instances: its machines; None: there is no cloud, or it knows of none.

    :raise ConfigurationError: it cannot be made as *spec* says.
    """

    def __init__(self, reactor: Any, spec: SSHSpec, config: RecordFile) -> None:
        self._name, self._config = spec.cloud_provider, spec.cloud_config
        path = str(config.path) if self._config else ""
        self._provider = init_cloud_provider(self._name, path, config.files) if self._name else None
        self.instances: IInstances | None = None
        if self._provider is not None:
            self._provider.initialize(reactor)
            self.instances = self._provider.instances()

    def is_meant_by(self, spec: SSHSpec) -> bool:
        """Tell whether *spec* wants this one."""
        return (self._name, self._config) == (spec.cloud_provider, spec.cloud_config)

    @property
    def install(self) -> Install | None:
        """What has the key let in at all machines; None: whoever keeps them does."""
        return None if self.instances is None else self.instances.add_ssh_key_to_all_instances

    async def prepare_dial(self, user: str, line: bytes, host: str) -> None:
        """See `ISSHKeyLease.prepare_dial`; where that is not needed nothing is done."""
        if self.instances is not None and ISSHKeyLease.providedBy(self.instances):
            await self.instances.prepare_dial(user, line, host)

    def stop(self) -> None:
        """End it, with all that goes on."""
        if self._provider is not None:
            self._provider.stop()
