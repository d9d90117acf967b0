"""The conditions of clusters that the controller sets in their records."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster, Condition
from tower.controller.objects.host_conditions import is_current
from tower.errors import NotFound


@frozen
class ClusterConditions:
    """Writes conditions that differ."""

    _clusters: Clusters

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


def is_true(record: Cluster, kind: str) -> bool:
    """Return whether a condition of a cluster is true."""
    condition = record.condition(kind)
    return condition is not None and condition.status == "True"
