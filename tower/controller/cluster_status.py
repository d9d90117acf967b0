"""The status of clusters that the controller reports: conditions, and the observed generation."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster, Condition
from tower.clusters.host.host_statuses import HostStatuses
from tower.controller.cluster_object import ClusterObject
from tower.controller.objects.host_cluster import HostCluster
from tower.controller.objects.host_conditions import is_current
from tower.errors import NotFound


@frozen
class ClusterStatus:
    """Writes what differs, in one request."""

    _clusters: Clusters
    _objects: ClusterObject
    _statuses: HostStatuses

    async def report(
        self,
        cluster: HostCluster,
        record: Cluster,
        wanted: Sequence[Condition],
        removed: Sequence[str] = (),
    ) -> None:
        """Report that *cluster* was handled, with conditions; see `set`.

        :raise TowerError: it cannot be written.
        """
        self._statuses.generations[cluster.name] = cluster.generation
        if not await self.set(record, wanted, removed):
            await self._objects.observe(cluster)

    async def set(self, record: Cluster, wanted: Sequence[Condition], removed: Sequence[str] = ()) -> bool:
        """Set conditions, and remove those of the types *removed*; return whether one was written.

        :raise TowerError: they cannot be written.
        """
        record = self._clusters.get(record.name) or record
        changed = [each for each in wanted if not is_current(record, each)]
        gone = [kind for kind in removed if record.condition(kind) is not None]
        if not changed and not gone:
            return False
        try:
            await self._clusters.set_conditions(record.name, changed, gone)
        except NotFound:
            pass  # it was removed meanwhile
        return True

    def forget(self, name: str) -> None:
        """Forget a removed cluster."""
        self._statuses.generations.pop(name, None)


def is_true(record: Cluster, kind: str) -> bool:
    """Return whether a condition of a cluster is true."""
    condition = record.condition(kind)
    return condition is not None and condition.status == "True"
