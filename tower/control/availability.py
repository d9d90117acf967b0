"""The conditions ``AgentAvailable`` and ``NodesAvailable``, which follow the clusters' tunnels."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Clusters, ConditionStatus
from tower.clusters.cluster import Cluster
from tower.errors import NotFound
from tower.store.records import Watch
from tower.tunnels import Tunnels

#: Condition of a cluster with an agent, as in upstream's CRD.
AGENT_AVAILABLE = "AgentAvailable"

#: Condition of a cluster of type ssh.
NODES_AVAILABLE = "NodesAvailable"

#: Time without a usable tunnel until the condition becomes False, s; a reconnect is faster.
GRACE = 10.0


class Availability(Service):
    """Sets the conditions; a change that lasts less than the grace period is not written."""

    _log = Logger()

    def __init__(
        self, reactor: IReactorTime, clusters: Clusters, tunnels: Tunnels, grace: float = GRACE
    ) -> None:
        self._reactor = reactor
        self._clusters = clusters
        self._tunnels = tunnels
        self._grace = grace
        self._timers: dict[str, IDelayedCall] = {}
        self._writing: set[Deferred[Any]] = set()
        self._watch: Watch | None = None
        tunnels.watch(self._changed)

    def startService(self) -> None:
        """Start; conditions of the previous run stay for the grace period."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watch = self._clusters.watch(lambda _, cluster: self._recorded(cluster))
        for cluster in self._clusters.list():
            self._changed(cluster.name)

    def _recorded(self, cluster: Cluster) -> None:
        """Start the grace period of a new cluster, for which a tunnel may never open."""
        if cluster.ssh is None or cluster.condition(NODES_AVAILABLE) or cluster.name in self._timers:
            return
        self._changed(cluster.name)

    def _changed(self, name: str) -> None:
        if not self.running:
            return
        is_available = bool(self._tunnels.live(name)) and not self._tunnels.trouble(name)
        if not is_available and name not in self._timers:
            self._timers[name] = self._reactor.callLater(self._grace, self._unavailable, name)
        elif is_available:
            timer = self._timers.pop(name, None)
            if timer is not None:
                timer.cancel()
            self._set(name, "True")

    def _unavailable(self, name: str) -> None:
        del self._timers[name]
        self._set(name, "False")

    def _set(self, name: str, status: ConditionStatus) -> None:
        cluster = self._clusters.get(name)
        if cluster is None:
            return
        kind = AGENT_AVAILABLE if cluster.ssh is None else NODES_AVAILABLE
        known = cluster.condition(kind)
        reason, message = self._explanation(name, kind, status)
        # the message about an agent contains the time of the change, so it stays
        is_same = kind == AGENT_AVAILABLE or (known and (known.reason, known.message) == (reason, message))
        if known is not None and known.status == status and is_same:
            return
        writing = self._clusters.set_condition(name, kind, status, reason, message)
        self._writing.add(writing)
        writing.addErrback(self._not_written, name)
        writing.addBoth(lambda _: self._writing.discard(writing))

    def _explanation(self, name: str, kind: str, status: ConditionStatus) -> tuple[str, str]:
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
            self._log.failure("cannot write condition of cluster {cluster}", failure, cluster=name)

    def stopService(self) -> None:
        """Stop; the store finishes pending writes."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._watch is not None:
            self._watch.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
