"""Warns about agents whose version is too far from the proxy's, in the log and as a condition."""

from __future__ import annotations

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters import Cluster, Clusters, ConditionStatus
from tower.clusters.cluster import Condition
from tower.control.condition_writer import ConditionWriter
from tower.store.records import EventType, Watch
from tower.tunnels import Tunnels
from tower.tunnels.version_skew import skew
from tower.websocket.subprotocols import TOWER_V2

#: Condition of a cluster; only those that ever had such an agent have it.
CONDITION = "AgentVersionSupported"


@define(eq=False)
class AgentVersions(Service):
    """Follows the tunnels; such agents are served all the same.

    :param version: of the proxy.
    """

    _log = Logger()

    _clock: IReactorTime
    _clusters: Clusters
    _tunnels: Tunnels
    _version: str
    _writer: ConditionWriter = field(init=False)
    _warned: dict[str, str] = field(factory=dict, init=False)
    _watch: Watch | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Follow the tunnels."""
        self._writer = ConditionWriter(self._clock, self._clusters, self._changed)
        self._tunnels.watch(self._changed)

    def startService(self) -> None:
        """Start."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watch = self._clusters.watch(self._recorded)

    def stopService(self) -> None:
        """Stop; the store finishes pending writes."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._watch is not None:
            self._watch.stop()
        self._writer.stop()

    def _recorded(self, event: EventType, cluster: Cluster) -> None:
        """Log a problem that is new in the record, whose writes are limited."""
        name = cluster.name
        if event == "DELETED":
            self._writer.forget(name)
            self._warned.pop(name, None)
            return
        known = cluster.condition(CONDITION)
        if known is None or known.status == "True":
            self._warned.pop(name, None)
        elif self._warned.get(name) != known.message:
            self._warned[name] = known.message
            self._log.warn("cluster {cluster}: {problem}", cluster=name, problem=known.message)

    def _changed(self, name: str) -> None:
        live = [tunnel for tunnel in self._tunnels.live(name) if tunnel.protocol == TOWER_V2]
        cluster = self._clusters.get(name)
        if not self.running or not live or cluster is None:
            return
        known = cluster.condition(CONDITION)
        problem = next(filter(None, (skew(tunnel.version, self._version) for tunnel in live)), "")
        if not problem and known is None:
            return
        status: ConditionStatus = "False" if problem else "True"
        reason = "VersionSkew" if problem else "VersionSupported"
        message = problem or "All agents have a supported version."
        self._writer.want(cluster, [Condition(CONDITION, status, reason, message, self._clock.seconds())])
