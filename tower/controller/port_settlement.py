"""The ports of clusters whose objects several programs write: assigned, kept or replaced, with events."""

from __future__ import annotations

from attrs import frozen

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster
from tower.clusters.ports.port_assignment import PortAssignment
from tower.controller.host_events import HostEvents
from tower.controller.objects.host_cluster import HostCluster
from tower.controller.objects.service_objects import kubesphere_port
from tower.errors import Conflict, TowerError
from tower.kube.rest.host_api import Object
from tower.store.records import RecordChanged
from tower.web.ports.kubesphere_port import OFFSET


class RecordPending(Conflict):
    """The cluster's record does not exist yet, or does not follow its object yet."""


class NoPort(TowerError):
    """The cluster cannot get a port; with the cure."""


@frozen
class PortSettlement:
    """Gives each cluster its own port."""

    _clusters: Clusters
    _assignment: PortAssignment
    _events: HostEvents

    async def settle(self, cluster: HostCluster, service: Object | None = None) -> Cluster:
        """Return the record of a cluster, which has its own port.

        :param service: the Service with the earlier port; None: there is none.
        :raise RecordPending: the record does not follow the object yet.
        :raise NoPort: no port is free, or clusters have none.
        :raise TowerError: the record cannot be written.
        """
        if self._clusters.ports.range is None:
            raise NoPort("clusters of this proxy have no ports (--cluster-ports none): set a range")
        before = self._clusters.require(cluster.name)
        if (cluster.connection.get("kubernetesAPIServerPort") or None) != before.kubernetes_port:
            raise RecordPending(f"the record of cluster {cluster.name} and its object have different ports")
        problem = "" if self._clusters.ports.owns(before) else self._clusters.ports.problem(before)
        try:
            record: Cluster = await self._assignment.settle(cluster.name)
        except RecordChanged:
            raise
        except Conflict as e:
            raise NoPort(str(e)) from e
        if before.kubernetes_port not in (None, record.kubernetes_port):
            text = f"kubernetesAPIServerPort {before.kubernetes_port}: replaced by {record.kubernetes_port}"
            self._events.record(cluster, "Warning", "PortReplaced", f"{text}: {problem}")
        assert record.kubernetes_port is not None
        self._report(cluster, record.kubernetes_port, before.kubernetes_port, _target(service))
        return record

    def _report(self, cluster: HostCluster, port: int, given: int | None, earlier: int | None) -> None:
        """Report a change of the port, and a port for KubeSphere that the cluster cannot have.

        :param given: in the object.
        :param earlier: in the Service.
        """
        ports = self._clusters.ports.range
        if ports is not None and port not in ports:
            text = (
                f"Port {port} is not in --cluster-ports {ports.start}-{ports.stop - 1} and stays: to replace "
                "it, remove spec.connection.kubernetesAPIServerPort"
            )
            self._events.record(cluster, "Warning", "PortOutOfRange", text)
        if earlier not in (None, port):
            self._events.record(cluster, "Normal", "PortChanged", f"Port {earlier} was changed to {port}")
        second = cluster.connection.get("kubesphereAPIServerPort") or None
        if second is None or second in [kubesphere_port(each) for each in (port, given, earlier) if each]:
            return
        expected = kubesphere_port(port)
        replaced = f"replaced by {expected}" if expected is not None else "removed"
        text = (
            f"kubesphereAPIServerPort {second}: {replaced}: it is always kubernetesAPIServerPort + {OFFSET}"
        )
        owner = self._clusters.ports.owner(second - OFFSET) if isinstance(second, int) else ""
        if owner not in ("", cluster.name):
            text += f"; cluster {owner} has port {second}"
        self._events.record(cluster, "Warning", "PortReplaced", text)


def _target(service: Object | None) -> int | None:
    """Return the cluster's own port in its Service, if there is one."""
    ports = (service or {}).get("spec", {}).get("ports") or []
    target = ports[0].get("targetPort") if ports else None
    return target if isinstance(target, int) else None
