"""The clusters that are reached by SSH to their nodes: kept as their records say, and looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster, Condition
from tower.clusters.node_status import SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ConfigurationError, NotFound
from tower.nodes.cluster import NodeCluster, NodeServices
from tower.nodes.kubelets import Kubelets
from tower.nodes.tunnel_metrics import Reading
from tower.nodes.tunneler import TunnelSyncUnhealthy
from tower.store.records import Watch

#: How often `NodeClusters.look` is to be called, s.
REPORT_PERIOD = 15.0

#: How often `NodeClusters.try_credentials` is to be called, s.
CREDENTIAL_PERIOD = 60.0

#: Types of conditions.
NODES_SYNCED = "NodesSynced"
MEMBER_CREDENTIAL = "MemberCredential"


class NodeClusters(Service):
    """Keeps a `NodeCluster` for each enabled cluster of type ssh."""

    _log = Logger()

    def __init__(self, around: NodeServices, clusters: Clusters) -> None:
        self._around = around
        self._clusters = clusters
        self._running: dict[str, NodeCluster] = {}
        self._problems: dict[str, str] = {}
        self._stopping: set[Deferred[Any]] = set()
        self._watches: list[Watch] = []

    def startService(self) -> None:
        """Begin to follow the records."""
        super().startService()  # type: ignore[no-untyped-call]
        self._warn_of_files()
        self._watches = [
            self._clusters.watch(lambda _, cluster: self._settle(cluster.name)),
            self._around.accesses.watch(self._credential_changed),
        ]
        for cluster in self._clusters.list():
            self._settle(cluster.name)

    def stopService(self) -> Deferred[Any]:
        """Close all tunnels; fires when that is done."""
        super().stopService()  # type: ignore[no-untyped-call]
        for watch in self._watches:
            watch.stop()
        self._watches.clear()
        for name in list(self._running):
            self._end(name, "the proxy is stopping")
        return DeferredList(list(self._stopping))

    def __iter__(self) -> Iterator[NodeCluster]:
        """Go through those that run."""
        return iter(list(self._running.values()))

    def get(self, name: str) -> NodeCluster | None:
        """Return the one of that name, if it runs."""
        return self._running.get(name)

    def status(self, name: str) -> SSHStatus | None:
        """Return what is known of a cluster's nodes; None if it does not run."""
        running = self._running.get(name)
        if running is not None:
            return running.status()
        problem = self._problems.get(name)
        return None if problem is None else SSHStatus(last_error=problem)

    def readings(self) -> dict[str, Reading]:
        """Return what Prometheus is told, by cluster."""
        return {each.cluster.name: Reading.of(each.tunneler) for each in self}

    def kubelets(self, name: str) -> Kubelets | None:
        """Return the kubelets of a cluster, if they are a target."""
        running = self._running.get(name)
        return None if running is None else running.kubelets

    def unhealthy(self) -> str:
        """Return what a health check is to say; empty when all is well."""
        for each in self:
            try:
                each.tunneler.check_healthy()
            except TunnelSyncUnhealthy as e:
                return str(e)
        return ""

    def check_files(self, name: str, spec: SSHSpec, before: SSHSpec | None = None) -> None:
        """See whether the record of a cluster may name its files; see `NodeFiles.check`."""
        self._around.files.check(name, spec, before)

    def _warn_of_files(self) -> None:
        """Say at the start which records name files that are not read any more, and how to move these."""
        for cluster in self._clusters.list():
            problems = [] if cluster.ssh is None else self._around.files.problems(cluster.name, cluster.ssh)
            for problem in problems:
                self._log.error("{cluster}: {problem}", cluster=cluster.name, problem=problem)
            if problems:
                self._problems[cluster.name] = "; ".join(problems)  # so that it is not logged again

    # Following the records

    def _settle(self, name: str) -> None:
        cluster = self._clusters.get(name)
        running = self._running.get(name)
        if cluster is None or cluster.ssh is None or not cluster.enabled:
            if self._problems.pop(name, None) is not None:
                self._around.tunnels.explain(name, None)
            if running is not None:
                self._end(name, "it was removed" if cluster is None else "it is disabled")
        elif running is None or not running.change(cluster):
            if running is not None:
                self._end(name, "it is reached otherwise now")
            self._begin(cluster)

    def _begin(self, cluster: Cluster) -> None:
        try:
            running = NodeCluster(self._around, cluster)
        except ConfigurationError as e:
            if self._problems.get(cluster.name) != str(e):
                self._log.error("{cluster}: {problem}", cluster=cluster.name, problem=str(e))
            self._problems[cluster.name] = str(e)
            self._around.tunnels.explain(cluster.name, lambda: self._problems.get(cluster.name, ""))
            return
        self._problems.pop(cluster.name, None)
        self._running[cluster.name] = running
        running.start()

    def _end(self, name: str, reason: str) -> None:
        stopping = self._running.pop(name).stop(reason)
        self._stopping.add(stopping)
        stopping.addErrback(self._not_stopped, name)
        stopping.addBoth(lambda _: self._stopping.discard(stopping))

    def _not_stopped(self, failure: Failure, name: str) -> None:
        self._log.failure("cannot close the tunnels of {cluster}", failure, cluster=name)

    def _credential_changed(self, name: str) -> None:
        running = self._running.get(name)
        if running is not None:
            running.renew_credential()
            Deferred.fromCoroutine(self._report(running)).addErrback(self._not_reported, name)

    def _not_reported(self, failure: Failure, name: str) -> None:
        self._log.failure("cannot write the conditions of {cluster}", failure, cluster=name)

    # Looking at them

    async def look(self) -> None:
        """Try again what could not be put together, and keep the conditions true; see `REPORT_PERIOD`."""
        if not self.running:
            return
        for name in list(self._problems):
            self._settle(name)
        for each in self:
            await self._report(each)

    async def try_credentials(self) -> None:
        """Find out which credentials are known to their API servers; see `CREDENTIAL_PERIOD`."""
        trying = [Deferred.fromCoroutine(each.try_credential()) for each in self]
        await DeferredList(trying, consumeErrors=True)
        for each in self:
            await self._report(each)

    async def _report(self, running: NodeCluster) -> None:
        name = running.cluster.name
        for wanted in _conditions(running):
            cluster = self._clusters.get(name)
            if cluster is None:
                return
            known = cluster.condition(wanted.type)
            if known is not None and _said(known) == _said(wanted):
                continue
            try:
                await self._clusters.set_condition(
                    name, wanted.type, wanted.status, wanted.reason, wanted.message
                )
            except NotFound:
                return  # removed in between


def _said(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _conditions(running: NodeCluster) -> Sequence[Condition]:
    """Return what is to be said of a cluster, times left out."""
    found = []
    try:
        running.tunneler.check_healthy()
    except TunnelSyncUnhealthy:
        message = running.tunneler.status().last_error or "Nodes or key were not looked after for too long."
        found.append(Condition(NODES_SYNCED, "False", "TooLongAgo", message, 0))
    else:
        found += _synced(running.tunneler.status())
    problem = running.gate.problem
    if problem:
        found.append(Condition(MEMBER_CREDENTIAL, "False", "Unusable", problem, 0))
    else:
        text = "The credential for the API server can be used."
        found.append(Condition(MEMBER_CREDENTIAL, "True", "Usable", text, 0))
    return found


def _synced(status: SSHStatus) -> Sequence[Condition]:
    """Return what is to be said of nodes and key that are not late; nothing before anything is known."""
    if status.last_sync is None:
        error = status.last_error
        return [Condition(NODES_SYNCED, "Unknown", "NotYet", error, 0)] if error else []
    text = "The nodes are listed, and the key is installed where somebody can, as often as need be."
    if status.last_error:
        text = f"It is not long ago that it went well; the last time did not: {status.last_error}"
    return [Condition(NODES_SYNCED, "True", "Synced", text, 0)]
