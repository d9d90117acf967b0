"""Keeps across restarts when each cluster was last seen, and its Kubernetes version."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from attrs import define
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters import Cluster, Clusters
from tower.control.conditions import link_type
from tower.errors import TowerError
from tower.store import IStore
from tower.store.kinds import SETTINGS
from tower.store.records import Create, Operation, Update
from tower.tunnels import Tunnels

#: Interval of `LastSeen.write`, s; after a crash the times are older by this at most.
PERIOD = 300.0

#: Number of the records; a single one would be too large for 10,000 clusters.
RECORDS = 16
_PREFIX = "last-seen-"

#: Time, s since the epoch, and version, by the cluster's uid.
_Seen = Mapping[str, tuple[int, str]]


@define(eq=False, slots=False)
class LastSeen(Service):
    """Restores the times at the start, and writes them at the stop; call `write` every `PERIOD` s, too."""

    _log = Logger()

    _store: IStore
    _clusters: Clusters
    _tunnels: Tunnels

    def startService(self) -> None:
        """Restore the times; a cluster without one was last seen when it became available."""
        super().startService()  # type: ignore[no-untyped-call]
        for cluster in self._clusters.list():
            record = self._store.get(SETTINGS, _name(cluster))
            known = record.value["clusters"].get(cluster.uid) if record is not None else None
            link = cluster.condition(link_type(cluster))
            if known is not None:
                self._tunnels.remember(cluster.name, *known)
            elif link is not None and link.status == "True":
                self._tunnels.remember(cluster.name, link.last_transition, "")

    def stopService(self) -> Deferred[None]:
        """Write the times."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self.write())

    async def write(self) -> None:
        """Write the times that changed, in one transaction."""
        found: dict[str, dict[str, tuple[int, str]]] = {
            name: {} for name in self._store.snapshot(SETTINGS) if name.startswith(_PREFIX)
        }
        for cluster in self._clusters.list():
            seen = self._tunnels.last_seen(cluster.name)
            if seen is not None:
                version = self._tunnels.kubernetes_version(cluster.name)
                found.setdefault(_name(cluster), {})[cluster.uid] = int(seen), version
        try:
            await self._store.transact([self._operation(*record) for record in sorted(found.items())])
        except TowerError as e:
            self._log.warn("cannot write when the clusters were last seen: {reason}", reason=str(e))

    def _operation(self, name: str, clusters: _Seen) -> Operation:
        value = {"clusters": clusters}
        if self._store.get(SETTINGS, name) is None:
            return Create(SETTINGS, name, value)
        return Update(SETTINGS, name, value)


def _name(cluster: Cluster) -> str:
    """Return the name of the record that has *cluster*."""
    return f"{_PREFIX}{zlib.crc32(cluster.uid.encode()) % RECORDS}"
