"""Keeps across restarts when each cluster and agent was last seen, and the clusters' Kubernetes versions."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from attrs import define, evolve, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.clusters import Cluster, Clusters
from tower.clusters.agent_keys import AgentKeys, LastAgent
from tower.control.conditions import link_type
from tower.errors import TowerError
from tower.store import IStore
from tower.store.kinds import SETTINGS
from tower.store.records import Create, Operation, StoreStopped, Update
from tower.tunnels import Tunnel, Tunnels

#: Interval of `LastSeen.write`, s, unless the store's `quiet_period` is longer; after a crash the times are
#: older by this at most.
PERIOD = 300.0

#: Number of the records; a single one would be too large for 10,000 clusters.
RECORDS = 16
_PREFIX = "last-seen-"

#: Time, s since the epoch, and version, by the cluster's uid.
_Seen = Mapping[str, tuple[int, str]]


@define(eq=False, slots=False)
class LastSeen(Service):
    """Restores the times at the start, and writes them at the stop; call `write` every `PERIOD` s, too.

    Agents are written when they connect and when they are lost.  An agent that was connected when the proxy
    ended was last seen when its cluster was.
    """

    _log = Logger()

    _store: IStore
    _clusters: Clusters
    _tunnels: Tunnels
    _keys: AgentKeys
    _agents: dict[str, dict[str, tuple[Tunnel, LastAgent]]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        """Follow the tunnels."""
        self._tunnels.watch(self._changed)

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
        self._keys.resume(self._tunnels.last_seen)

    def stopService(self) -> Deferred[None]:
        """Write the times."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._last_write())

    async def _last_write(self) -> None:
        await self.write()
        await self._keys.flush()

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
            await self._keys.settle()
            await self._store.transact([self._operation(*record) for record in sorted(found.items())])
        except StoreStopped:
            return  # the program ends without its store
        except TowerError as e:
            self._log.warn("cannot write when the clusters were last seen: {reason}", reason=str(e))

    def _changed(self, cluster: str) -> None:
        before = self._agents.pop(cluster, {})
        live: dict[str, tuple[Tunnel, LastAgent]] = {}
        for tunnel in self._tunnels.live(cluster):
            name, quiet = tunnel.fingerprint, self._tunnels.quiet_since(tunnel)
            if name in live and (name not in before or before[name][0] is not tunnel):
                continue  # replicas share a key: one of them is noted, as long as it is connected
            agent = LastAgent(tunnel.host, tunnel.peer, tunnel.version, quiet)
            live[name] = tunnel, agent
        for name, (tunnel, agent) in live.items():
            if name not in before or before[name][0] is not tunnel:
                self._keys.saw(cluster, name, evolve(agent, seen=None))
        for name, (_, agent) in before.items():
            if name not in live:
                seen = self._keys.now if agent.seen is None else agent.seen
                self._keys.saw(cluster, name, evolve(agent, seen=seen))
        if live:
            self._agents[cluster] = live

    def _operation(self, name: str, clusters: _Seen) -> Operation:
        value = {"clusters": clusters}
        if self._store.get(SETTINGS, name) is None:
            return Create(SETTINGS, name, value)
        return Update(SETTINGS, name, value)


def _name(cluster: Cluster) -> str:
    """Return the name of the record that has *cluster*."""
    return f"{_PREFIX}{zlib.crc32(cluster.uid.encode()) % RECORDS}"
