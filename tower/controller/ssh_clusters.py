"""Clusters of type ssh in the host: their ports, and kubeconfigs that users write to their objects."""

from __future__ import annotations

from attrs import frozen

from tower.clusters.cluster import Cluster
from tower.clusters.records import Records
from tower.controller.cluster_object import ClusterObject
from tower.controller.cluster_status import ClusterStatus
from tower.controller.host_events import EventType, HostEvents
from tower.controller.objects.host_cluster import HostCluster
from tower.controller.objects.host_conditions import INITIALIZED, initialized, not_initialized, not_joined
from tower.controller.objects.secret_objects import KUBECONFIG
from tower.controller.port_settlement import PortSettlement
from tower.web.api.writes.cluster_object import read_access


@frozen
class SSHClusters:
    """Brings them in line; they have no Service."""

    _records: Records
    _objects: ClusterObject
    _status: ClusterStatus
    _ports: PortSettlement
    _events: HostEvents

    async def settle(self, cluster: HostCluster, record: Cluster) -> None:
        """Give a cluster its port, and seal the kubeconfig in its object.

        :raise TowerError: the kubeconfig cannot be used, or a write failed.
        """
        if not cluster.is_joined:
            await self._report(cluster, record, is_ready=False)
            return
        if self._records.clusters.ports.range is not None:
            record = await self._ports.settle(cluster)
        if cluster.text(KUBECONFIG):
            await self._seal(cluster)
        is_ready = self._records.member_credentials.facts(record) is not None
        await self._report(cluster, record, is_ready=is_ready)

    async def _seal(self, cluster: HostCluster) -> None:
        access = read_access({"spec": {"connection": {KUBECONFIG: cluster.text(KUBECONFIG)}}})
        await self._records.clusters.change(cluster.name, lambda record: record, access=access)
        await self._objects.apply(cluster, {"spec": {"connection": {KUBECONFIG: None}}})
        text = "spec.connection.kubeconfig was encrypted and stored, and removed from the object"
        self._events.record(cluster, "Normal", "KubeconfigSealed", text)

    async def _report(self, cluster: HostCluster, record: Cluster, *, is_ready: bool) -> None:
        condition = initialized()
        if not cluster.is_joined:
            condition = not_joined(cluster)
        elif not is_ready:
            text = (
                "the proxy has no kubeconfig of the cluster: write one in base64 to "
                f"spec.connection.kubeconfig, or run 'tower cluster set {cluster.name} --member-kubeconfig K'"
            )
            condition = not_initialized("CredentialMissing", text)
        known = record.condition(INITIALIZED)
        if known is None or known.reason != condition.reason:
            kind: EventType = "Warning" if condition.reason == "CredentialMissing" else "Normal"
            is_served = condition.status == "True"
            self._events.record(cluster, kind, condition.reason, condition.message, is_served=is_served)
        await self._status.report(cluster, record, [condition])
