"""Reconciliation of one cluster: its port, Service, certificate names, kubeconfig, token and conditions.

Each step compares first, so that a cluster whose objects are right is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from tower.clusters.cluster import Cluster, Condition
from tower.clusters.condition_types import AVAILABLE
from tower.clusters.object_meta import check_name
from tower.clusters.records import Records
from tower.controller.applier import Applier
from tower.controller.cluster_access import ClusterAccess
from tower.controller.cluster_object import ClusterObject
from tower.controller.cluster_services import ClusterServices, balancer_condition
from tower.controller.cluster_status import ClusterStatus, is_true
from tower.controller.host_access import HostAccess
from tower.controller.host_events import HostEvents
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.endpoints import with_endpoints
from tower.controller.objects.host_cluster import FINALIZER, PROXY, SSH, HostCluster, HostObjects
from tower.controller.objects.host_conditions import (
    EXTERNAL_ACCESS_READY,
    INITIALIZED,
    initialized,
    not_initialized,
)
from tower.controller.objects.service_objects import (
    SERVICE_NAMES,
    balancer_names,
    certificate_names,
    service_name,
)
from tower.controller.port_settlement import PortSettlement, RecordPending
from tower.controller.prerequisites import NAMESPACE_MISSING
from tower.controller.ssh_clusters import SSHClusters
from tower.controller.withdrawal import Withdrawal
from tower.errors import Invalid
from tower.kube.rest.host_api import Object


class InvalidName(Invalid):
    """The object has a name that no cluster of Tower can have; with the allowed form."""


class Reconciler:
    """Brings the objects of clusters in line.

    :param issuer: of the kubeconfigs.
    :param uses_tokens: whether ``kubesphere-v1`` agents are allowed.
    :param set_names: called with a cluster and all names of its Service, before users get to know them.
    :param epoch: returns the time, s since the epoch.
    """

    def __init__(
        self,
        host: HostAccess,
        records: Records,
        issuer: KubeconfigIssuer,
        events: HostEvents,
        set_names: Callable[[str, Sequence[str]], None],
        epoch: Callable[[], float],
        *,
        uses_tokens: bool,
    ) -> None:
        self._clusters = records.clusters
        self._events = events
        self._set_names = set_names
        api, settings = host.api, host.settings
        self._has_finalizer = not settings.is_compatible
        applier = Applier(api, settings.namespace)
        tokens = records.v1_tokens if uses_tokens else None
        self._objects = ClusterObject(api, epoch, host.statuses)
        self._services = ClusterServices(applier, settings)
        self._access = ClusterAccess(applier, issuer, tokens, settings, events)
        self._ports = PortSettlement(self._clusters, records.port_assignment, events)
        self._status = ClusterStatus(self._clusters, self._objects, host.statuses)
        self._ssh = SSHClusters(records, self._objects, self._status, self._ports, events)
        self._withdrawal = Withdrawal(
            self._clusters,
            records.port_assignment,
            self._objects,
            self._services,
            self._access,
            self._status,
            events,
        )

    def set_names(self, cluster: HostCluster, service: Object | None) -> None:
        """Set the names of a cluster's port to those of its Service, if it exists."""
        names = (*certificate_names(service), *SERVICE_NAMES) if cluster.is_served else ()
        self._set_names(cluster.name, names)

    async def reconcile(self, name: str, objects: HostObjects) -> float | None:
        """Bring everything in line; return the time until the next work, s, or None.

        :raise TowerError: a write failed; to be called again.
        """
        cluster = objects.cluster
        if cluster is None:
            self._status.forget(name)
            self._access.forget(name)
        if cluster is not None and cluster.is_served:
            return await self._serve(cluster, objects)
        self._set_names(name, ())
        self._access.written(name)
        if cluster is not None:
            await self._withdrawal.withdraw(cluster, objects)
            if cluster.type == SSH and not cluster.is_deleted:
                await self._ssh.settle(cluster, await self._require(name))
        elif self._clusters.get(name) is None:  # else the object is new, and not known yet
            await self._withdrawal.clear(objects)
        return None

    async def failed(self, cluster: HostCluster, reason: str, text: str, *, is_lasting: bool) -> None:
        """Report a failure in the condition of a cluster.

        :param is_lasting: also if it was served before.
        :raise TowerError: the condition cannot be written.
        """
        if reason == NAMESPACE_MISSING:
            self._access.lost(cluster.name)
        record = self._clusters.get(cluster.name)
        condition = not_initialized(reason, text)
        if record is None:
            if cluster.type not in (PROXY, SSH) or not is_lasting:
                return
            await self._objects.set_conditions(cluster, [condition, evolve(condition, type=AVAILABLE)])
        elif is_lasting or not is_true(record, INITIALIZED):
            await self._status.set(record, [condition])

    async def write_facts(self, cluster: HostCluster) -> None:
        """Write the versions of a cluster's members if they differ.

        :raise TowerError: they cannot be written.
        """
        await self._objects.write_facts(cluster)

    async def _serve(self, cluster: HostCluster, objects: HostObjects) -> float | None:
        name = cluster.name
        await self._require(name)
        record = await self._ports.settle(cluster, objects.service)
        port = record.kubernetes_port
        assert port is not None
        service = await self._services.apply(cluster, port, objects)
        self.set_names(cluster, service)
        access, delay = await self._access.settle(cluster, record, service)
        # KubeSphere's webhook denies each write to the object until the agent, which needs its token, answers
        # through the kubeconfig in it: so the first write has the kubeconfig.
        wanted = with_endpoints(name, access, service, port)
        cluster = await self._objects.apply(cluster, wanted, self._finalizers)
        self._access.written(name)
        external = balancer_condition(cluster, service)
        await self._status.report(
            cluster,
            record,
            [initialized(self._services.endpoint_problem(name)), *([external] if external else [])],
            () if external else (EXTERNAL_ACCESS_READY,),
        )
        self._report_served(cluster, record, service, external)
        return delay

    def _finalizers(self, cluster: HostCluster) -> Sequence[str]:
        """Return the finalizers of a cluster that is served: with Tower's, which is the last one.

        For KubeSphere, without it: KubeSphere Tower, which may come back, does not know it, and a webhook
        would deny its removal once the cluster is not served.  Without it, objects of a cluster go after it.
        """
        others = tuple(each for each in cluster.finalizers if each != FINALIZER)
        if not self._has_finalizer:
            return others
        is_kept = len(others) < len(cluster.finalizers)
        return cluster.finalizers if is_kept or cluster.is_deleted else (*others, FINALIZER)

    async def _require(self, name: str) -> Cluster:
        """Return the record of a cluster whose object exists.

        :raise InvalidName: it cannot have one.
        :raise Invalid: likewise, because of another field.
        :raise RecordPending: try again.
        """
        record = self._clusters.get(name)
        if record is None:
            _check_name(name)
            await self._objects.check(name)
            raise RecordPending(f"cluster {name} has no record yet")
        return record

    def _report_served(
        self, cluster: HostCluster, before: Cluster, service: Object, external: Condition | None
    ) -> None:
        """Record the events of a cluster that is served now, and was not *before*."""
        if not is_true(before, INITIALIZED):
            text = f"Service {service_name(cluster.name)} has port {before.kubernetes_port}"
            self._events.record(cluster, "Normal", INITIALIZED, text, is_served=True)
        if problem := self._services.endpoint_problem(cluster.name):
            self._events.record(cluster, "Warning", "NoEndpoint", problem)
        had_access = is_true(before, EXTERNAL_ACCESS_READY)
        if external is not None and external.status == "True" and not had_access:
            text = f"The API server is served at {balancer_names(service)[0]}"
            self._events.record(cluster, "Normal", EXTERNAL_ACCESS_READY, text)


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except Invalid as e:
        raise InvalidName(f"{e}: create the object with another name") from e
