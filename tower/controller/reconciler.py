"""Reconciliation of one cluster: its port, Service, certificate names, kubeconfig, token and conditions.

Each step compares first, so that a cluster whose objects are right is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from tower.clusters.cluster import Cluster, Condition, check_name
from tower.clusters.condition_types import AVAILABLE
from tower.clusters.records import Records
from tower.controller.applier import Applier
from tower.controller.cluster_access import ClusterAccess
from tower.controller.cluster_conditions import ClusterConditions, is_true
from tower.controller.cluster_object import ClusterObject
from tower.controller.cluster_services import ClusterServices, balancer_condition
from tower.controller.host_events import HostEvents
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.endpoints import with_endpoints
from tower.controller.objects.host_cluster import FINALIZER, PROXY, HostCluster, HostObjects
from tower.controller.objects.host_conditions import (
    EXTERNAL_ACCESS_READY,
    INITIALIZED,
    initialized,
    not_initialized,
)
from tower.controller.objects.service_objects import (
    SERVICE_NAMES,
    HostSettings,
    balancer_names,
    certificate_names,
    service_name,
)
from tower.controller.withdrawal import Withdrawal
from tower.errors import Conflict, Invalid, TowerError
from tower.kube.rest.host_api import HostAPI, Object
from tower.store.records import RecordChanged


class RecordPending(Conflict):
    """The cluster's record does not exist yet."""


class NoPort(TowerError):
    """The cluster cannot get a port; with the cure."""


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
        api: HostAPI,
        records: Records,
        issuer: KubeconfigIssuer,
        settings: HostSettings,
        events: HostEvents,
        set_names: Callable[[str, Sequence[str]], None],
        epoch: Callable[[], float],
        *,
        uses_tokens: bool,
    ) -> None:
        self._clusters = records.clusters
        self._events = events
        self._set_names = set_names
        self._has_finalizer = not settings.is_compatible
        applier = Applier(api, settings.namespace)
        tokens = records.v1_tokens if uses_tokens else None
        self._objects = ClusterObject(api, epoch)
        self._services = ClusterServices(applier, settings, events)
        self._access = ClusterAccess(applier, issuer, tokens, settings, events)
        self._conditions = ClusterConditions(self._clusters)
        self._withdrawal = Withdrawal(
            self._clusters, self._objects, self._services, self._access, self._conditions, events
        )

    async def reconcile(self, name: str, objects: HostObjects) -> float | None:
        """Bring everything in line; return the time until the next work, s, or None.

        :raise TowerError: a write failed; to be called again.
        """
        cluster = objects.cluster
        if cluster is not None and cluster.is_served:
            return await self._serve(cluster, objects)
        self._set_names(name, ())
        self._access.written(name)
        if cluster is not None:
            await self._withdrawal.withdraw(cluster, objects)
        elif self._clusters.get(name) is None:  # else the object is new, and not known yet
            await self._withdrawal.clear(objects)
        return None

    async def failed(self, cluster: HostCluster, reason: str, text: str, *, is_lasting: bool) -> None:
        """Report a failure in the condition of a cluster.

        :param is_lasting: also if it was served before.
        :raise TowerError: the condition cannot be written.
        """
        record = self._clusters.get(cluster.name)
        condition = not_initialized(reason, text)
        if record is None:
            if cluster.type != PROXY or not is_lasting:
                return
            await self._objects.set_conditions(cluster, [condition, evolve(condition, type=AVAILABLE)])
        elif is_lasting or not is_true(record, INITIALIZED):
            await self._conditions.set(record, [condition])

    async def _serve(self, cluster: HostCluster, objects: HostObjects) -> float | None:
        name = cluster.name
        if self._clusters.get(name) is None:
            _check_name(name)
            raise RecordPending(f"cluster {name} has no record yet")
        record = await self._settle_port(cluster)
        port = record.kubernetes_port
        if port is None:
            raise NoPort("clusters of this proxy have no ports (--cluster-ports none): set a range")
        service = await self._services.apply(cluster, port, objects)
        self._set_names(name, (*certificate_names(service), *SERVICE_NAMES))
        access, delay = await self._access.settle(cluster, record, service)
        # KubeSphere's webhook denies each write to the object until the agent, which needs its token, answers
        # through the kubeconfig in it: so the first write has the kubeconfig.
        cluster = await self._objects.apply(cluster, with_endpoints(name, access, service, port))
        self._access.written(name)
        await self._settle_finalizer(cluster)
        external = balancer_condition(cluster, service)
        await self._conditions.set(
            record,
            [initialized(), *([external] if external else [])],
            () if external else (EXTERNAL_ACCESS_READY,),
        )
        self._report_served(cluster, record, service, external)
        return delay

    async def _settle_finalizer(self, cluster: HostCluster) -> None:
        """Add Tower's finalizer to the object.

        For KubeSphere, remove it: KubeSphere Tower, which may come back, does not know it, and a webhook
        would deny its removal once the cluster is not served.  Without it, objects of a cluster go after it.
        """
        others = tuple(each for each in cluster.finalizers if each != FINALIZER)
        if not self._has_finalizer:
            if others != cluster.finalizers:
                await self._objects.set_finalizers(cluster, others)
        elif others == cluster.finalizers and not cluster.is_deleted:
            await self._objects.set_finalizers(cluster, (*others, FINALIZER))

    async def _settle_port(self, cluster: HostCluster) -> Cluster:
        before = self._clusters.require(cluster.name)
        try:
            record: Cluster = await self._clusters.settle_port(cluster.name)
        except RecordChanged:
            raise
        except Conflict as e:
            raise NoPort(str(e)) from e
        if before.kubernetes_port is not None and record.kubernetes_port != before.kubernetes_port:
            text = f"Replaced by port {record.kubernetes_port}: {self._clusters.port_problem(before)}"
            self._events.record(cluster, "Warning", "PortReplaced", text)
        return record

    def _report_served(
        self, cluster: HostCluster, before: Cluster, service: Object, external: Condition | None
    ) -> None:
        """Record the events of a cluster that is served now, and was not *before*."""
        if not is_true(before, INITIALIZED):
            text = f"Service {service_name(cluster.name)} has port {before.kubernetes_port}"
            self._events.record(cluster, "Normal", INITIALIZED, text)
        had_access = is_true(before, EXTERNAL_ACCESS_READY)
        if external is not None and external.status == "True" and not had_access:
            text = f"The API server is served at {balancer_names(service)[0]}"
            self._events.record(cluster, "Normal", EXTERNAL_ACCESS_READY, text)


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except Invalid as e:
        raise InvalidName(f"{e}: create the object with another name") from e
