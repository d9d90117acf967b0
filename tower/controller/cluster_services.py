"""The Services of clusters in the host, with their EndpointSlices and load balancers."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from tower.clusters.cluster import Condition
from tower.controller.applier import Applier
from tower.controller.objects.host_cluster import HostCluster, HostObjects
from tower.controller.objects.host_conditions import exported, not_exported
from tower.controller.objects.service_objects import (
    HostSettings,
    InvalidAnnotation,
    balancer_annotations,
    balancer_names,
    service_name,
    wanted_service,
    wanted_slices,
)
from tower.errors import Conflict
from tower.kube.client import APIError
from tower.kube.rest.host_api import Object
from tower.kube.rest.well_known import ENDPOINT_SLICES, SERVICES

#: Attempts to get the last ClusterIP again before another one is taken.  The API server releases the
#: ClusterIP of a deleted Service only after it has reported the deletion.
ATTEMPTS = 5

_INVALID = 422


class AddressTaken(Conflict):
    """Another Service has the last ClusterIP of a cluster, or had it until now."""


@frozen
class ClusterServices:
    """Applies and removes them."""

    _applier: Applier
    _settings: HostSettings
    _refused: dict[str, int] = field(factory=dict, init=False)  # attempts, by cluster

    async def apply(self, cluster: HostCluster, port: int, objects: HostObjects) -> Object:
        """Bring the Service of a cluster in line; return it.

        :param port: the cluster's own.
        :raise AddressTaken: try again; after `ATTEMPTS`, it gets another address.
        :raise TowerError: a write failed.
        """
        service = await self._apply_service(cluster, port, objects.service)
        await self._apply_slices(cluster, port, objects.slices)
        return service

    async def remove(self, objects: HostObjects) -> None:
        """Remove the Service of a cluster.

        :raise APIError: a write failed.
        """
        for each in objects.slices:
            await self._applier.delete(ENDPOINT_SLICES, each)
        if objects.service is not None:
            await self._applier.delete(SERVICES, objects.service)

    def endpoint_problem(self, name: str) -> str:
        """Return why the Service of a cluster has no endpoint, with the cure; empty: it has one."""
        if self._settings.selector is not None or self._settings.addresses:
            return ""
        return (
            f"Service {service_name(name)} has no endpoint: the proxy has no IP address for the host "
            "cluster: set --publish-service-address to one that is not a loopback address"
        )

    async def _apply_service(self, cluster: HostCluster, port: int, current: Object | None) -> Object:
        wanted = wanted_service(cluster, port, self._settings, current)
        if current is None and cluster.last_address:
            spec = {**wanted["spec"], "clusterIP": cluster.last_address}
            try:
                service = await self._applier.apply(SERVICES, {**wanted, "spec": spec}, None)
            except APIError as e:
                if e.code != _INVALID:
                    raise
                self._refuse(cluster, e)
            else:
                self._refused.pop(cluster.name, None)
                return service
        return await self._applier.apply(SERVICES, wanted, current)

    def _refuse(self, cluster: HostCluster, error: APIError) -> None:
        """Return if a cluster must get another ClusterIP: its last one is not in the range, or taken.

        :raise AddressTaken: it may be free soon.
        """
        attempts = self._refused.pop(cluster.name, 0) + 1
        if "already allocated" in error.message and attempts < ATTEMPTS:
            self._refused[cluster.name] = attempts
            raise AddressTaken(f"ClusterIP {cluster.last_address} is allocated") from error

    async def _apply_slices(self, cluster: HostCluster, port: int, known: Sequence[Object]) -> None:
        current = {each["metadata"]["name"]: each for each in known}
        for wanted in wanted_slices(cluster, port, self._settings):
            await self._applier.apply(ENDPOINT_SLICES, wanted, current.pop(wanted["metadata"]["name"], None))
        for each in current.values():
            await self._applier.delete(ENDPOINT_SLICES, each)


def balancer_condition(cluster: HostCluster, service: Object) -> Condition | None:
    """Return the condition of the load balancer of a cluster; None: there is none."""
    if not cluster.is_exported:
        return None
    try:
        balancer_annotations(cluster)
    except InvalidAnnotation as e:
        return not_exported("InvalidAnnotation", str(e))
    if not balancer_names(service):
        metadata = service["metadata"]
        text = f"Service {metadata['namespace']}/{metadata['name']} has no load balancer address yet"
        return not_exported("LoadBalancerPending", text)
    return exported()
