"""The conditions ``AgentAvailable`` and ``NodesAvailable`` of clusters, kept true to their tunnels."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Clusters, ConditionStatus
from tower.clusters.cluster import Cluster
from tower.errors import NotFound
from tower.store.records import Watch
from tower.tunnels import Tunnels

#: The condition's type, as upstream's CRD has it.
AGENT_AVAILABLE = "AgentAvailable"

#: The same for a cluster that is reached by SSH to its nodes.
NODES_AVAILABLE = "NodesAvailable"

#: How long a cluster may be without an agent, or its nodes be of no use, before the condition says so: a
#: reconnect is no news, s.
GRACE = 10.0


class Availability(Service):
    """Follows the tunnels; only a change that lasts is written.

    :param reactor: an ``IReactorTime``.
    """

    _log = Logger()

    def __init__(self, reactor: Any, clusters: Clusters, tunnels: Tunnels, grace: float = GRACE) -> None:
        self._reactor = reactor
        self._clusters = clusters
        self._tunnels = tunnels
        self._grace = grace
        self._timers: dict[str, Any] = {}
        self._writing: set[Deferred[Any]] = set()
        self._watch: Watch | None = None
        tunnels.watch(self._changed)

    def startService(self) -> None:
        """Begin: what the last run left behind is only believed for the grace period."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watch = self._clusters.watch(lambda _, cluster: self._recorded(cluster))
        for cluster in self._clusters.list():
            self._changed(cluster.name)

    def _recorded(self, cluster: Cluster) -> None:
        """Begin to wait for the nodes of a new cluster, of which there may never be one."""
        if cluster.ssh is None or cluster.condition(NODES_AVAILABLE) or cluster.name in self._timers:
            return
        self._changed(cluster.name)

    def _changed(self, name: str) -> None:
        if not self.running:
            return
        is_well = bool(self._tunnels.live(name)) and not self._tunnels.trouble(name)
        if not is_well and name not in self._timers:
            self._timers[name] = self._reactor.callLater(self._grace, self._still_without, name)
        elif is_well:
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer.cancel()
            self._set(name, "True")

    def _still_without(self, name: str) -> None:
        del self._timers[name]
        self._set(name, "False")

    def _set(self, name: str, status: ConditionStatus) -> None:
        cluster = self._clusters.get(name)
        if cluster is None:
            return
        kind = AGENT_AVAILABLE if cluster.ssh is None else NODES_AVAILABLE
        known = cluster.condition(kind)
        reason, message = self._said(name, kind, status)
        told = None if known is None else (known.status, known.reason, known.message)
        if kind == AGENT_AVAILABLE and told is not None:
            told = told[0], reason, message  # which has a time in it, that of the change
        if told == (status, reason, message):
            return
        writing = self._clusters.set_condition(name, kind, status, reason, message)
        self._writing.add(writing)
        writing.addErrback(self._not_written, name)
        writing.addBoth(lambda _: self._writing.discard(writing))

    def _said(self, name: str, kind: str, status: ConditionStatus) -> tuple[str, str]:
        """Return reason and message."""
        if kind == AGENT_AVAILABLE:
            if status == "True":
                return "AgentConnected", "Agent has connected to proxy successfully."
            return "AgentDisconnected", f"The {self._tunnels.why_not(name)}."
        if status == "True":
            return "TunnelOpen", "An SSH tunnel to a node is open."
        if self._tunnels.live(name):
            return "NodesDegraded", self._tunnels.trouble(name)
        return "NoTunnel", self._tunnels.why_not(name)

    def _not_written(self, failure: Failure, name: str) -> None:
        if not failure.check(NotFound):  # removed in between
            self._log.failure("cannot write the condition of {cluster}", failure, cluster=name)

    def stopService(self) -> None:
        """Stop; what is being written is the store's to finish."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._watch is not None:
            self._watch.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
