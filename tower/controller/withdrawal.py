"""Removes the objects of clusters that are not served any more."""

from __future__ import annotations

from functools import partial

from attrs import frozen

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster
from tower.clusters.condition_types import AGENT_AVAILABLE
from tower.clusters.ports.port_assignment import PortAssignment
from tower.controller.cluster_access import ClusterAccess
from tower.controller.cluster_object import ClusterObject
from tower.controller.cluster_services import ClusterServices
from tower.controller.cluster_status import ClusterStatus
from tower.controller.host_events import HostEvents
from tower.controller.objects.endpoints import ENDPOINTS, endpoints
from tower.controller.objects.host_cluster import (
    ADDRESS_ANNOTATION,
    FINALIZER,
    PROXY,
    SECRET_ANNOTATION,
    SSH,
    STAMP_ANNOTATION,
    TOKEN_ANNOTATION,
    HostCluster,
    HostObjects,
)
from tower.controller.objects.host_conditions import EXTERNAL_ACCESS_READY, INITIALIZED, not_joined
from tower.controller.objects.secret_objects import (
    KUBECONFIG,
    ClusterSecrets,
    encoded,
    kubeconfig_in,
)
from tower.controller.objects.service_objects import cluster_of
from tower.kube.rest.host_api import Object


@frozen
class Withdrawal:
    """Withdraws clusters."""

    _clusters: Clusters
    _assignment: PortAssignment
    _objects: ClusterObject
    _services: ClusterServices
    _access: ClusterAccess
    _status: ClusterStatus
    _events: HostEvents

    async def withdraw(self, cluster: HostCluster, objects: HostObjects) -> None:
        """Remove Service and kubeconfig of a cluster that should not be served, or is being deleted.

        :raise TowerError: a write failed.
        """
        record = self._clusters.get(cluster.name)
        if objects.service is not None or objects.slices or FINALIZER in cluster.finalizers:
            if cluster.type != PROXY and not cluster.is_deleted:
                cluster = await self._leave(cluster, record, objects.service)
            await self._access.remove(cluster.name, cluster, partial(_kept, cluster))
            await self._services.remove(objects)
            if cluster.is_deleted and record is not None:
                await self._assignment.release(record.uid)
            if not cluster.is_deleted and cluster.type == PROXY:
                cluster = await self._objects.apply(cluster, self._withdrawn(cluster))
                text = "The Service was removed"
                self._events.record(cluster, "Normal", "Withdrawn", text, is_served=False)
            left = tuple(each for each in cluster.finalizers if each != FINALIZER)
            if left != cluster.finalizers:
                cluster = await self._objects.set_finalizers(cluster, left)
        if record is None or cluster.is_deleted:
            return
        if cluster.type == PROXY:
            reason = not_joined(cluster)
            if record.condition(INITIALIZED) is None:
                self._events.record(cluster, "Normal", reason.reason, reason.message, is_served=False)
            await self._status.report(cluster, record, [reason], (EXTERNAL_ACCESS_READY,))

    async def clear(self, objects: HostObjects) -> None:
        """Remove the objects of a cluster that does not exist any more.

        :raise TowerError: a write failed.
        """
        if objects.service is not None:
            await self._access.remove(cluster_of(objects.service["metadata"]["name"]))
        await self._services.remove(objects)

    async def _leave(
        self, cluster: HostCluster, record: Cluster | None, service: Object | None
    ) -> HostCluster:
        """Remove what Tower wrote to the object of a cluster that has got another type."""
        text = f"spec.connection.type is {cluster.type or 'empty'}, no longer {PROXY}: the Service is removed"
        self._events.record(cluster, "Normal", "Withdrawn", text, is_served=False)
        if record is not None and cluster.type == SSH:
            await self._status.set(record, (), (INITIALIZED, EXTERNAL_ACCESS_READY, AGENT_AVAILABLE))
        else:  # the record ends
            await self._objects.set_conditions(cluster, ())
        connection = {} if service is None else endpoints(service)
        changed: dict[str, str | None] = {
            key: None for key, value in connection.items() if value and cluster.text(key) == value
        }
        if not self._access.has_foreign_kubeconfig(cluster):
            others = await self._access.others(cluster.name)
            changed[KUBECONFIG] = encoded(others[-1]) if others else None
        annotations = dict.fromkeys(
            (TOKEN_ANNOTATION, SECRET_ANNOTATION, STAMP_ANNOTATION, ADDRESS_ANNOTATION)
        )
        wanted = {"metadata": {"annotations": annotations}, "spec": {"connection": changed}}
        await self._access.revoke(cluster)
        return await self._objects.apply(cluster, wanted)

    def _withdrawn(self, cluster: HostCluster) -> Object:
        """Return the wanted fields of the object of a cluster that is not served."""
        fields = list(ENDPOINTS)
        if not self._access.has_foreign_kubeconfig(cluster):
            fields.append(KUBECONFIG)
        return {"spec": {"connection": dict.fromkeys(fields)}}


def _kept(cluster: HostCluster, held: ClusterSecrets) -> ClusterSecrets:
    """Return what stays in the Secret of a cluster that is withdrawn.

    Its agents connect again when it is joined again, with the same token.
    """
    if cluster.is_deleted:
        return ClusterSecrets()
    own = kubeconfig_in(cluster)
    others = tuple(each for each in held.others if each != own)
    return ClusterSecrets(token=held.token if cluster.type == PROXY else "", others=others)
