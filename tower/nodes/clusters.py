"""All clusters that are reached by SSH to their nodes: follows their records and reports their conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters import Clusters
from tower.clusters.cluster import Cluster, Condition
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import SSHStatus
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ConfigurationError, NotFound
from tower.nodes.cluster import NodeCluster
from tower.nodes.kubelets import Kubelets
from tower.nodes.record_files import NodeFiles
from tower.nodes.tunnel_metrics import Reading
from tower.nodes.tunneler import TunnelSyncUnhealthy
from tower.store.records import Watch
from tower.tunnels import Tunnels

#: Interval between calls of `NodeClusters.report`, s.
REPORT_PERIOD = 15.0

#: Type of the condition.
NODES_SYNCED = "NodesSynced"


class NodeClusters(Service):
    """Runs a `NodeCluster`, which *create* returns, for each enabled cluster of type ssh."""

    _log = Logger()

    def __init__(
        self,
        clusters: Clusters,
        credentials: MemberCredentials,
        tunnels: Tunnels,
        files: NodeFiles,
        create: Callable[[Cluster], NodeCluster],
    ) -> None:
        self._clusters = clusters
        self._credentials = credentials
        self._tunnels = tunnels
        self._files = files
        self._create = create
        self._running: dict[str, NodeCluster] = {}
        self._problems: dict[str, str] = {}
        self._stopping: set[Deferred[Any]] = set()
        self._watches: list[Watch] = []

    def startService(self) -> None:
        """Start following the records."""
        super().startService()  # type: ignore[no-untyped-call]
        self._warn_of_files()
        self._watches = [
            self._clusters.watch(lambda _, cluster: self._follow(cluster.name)),
            self._credentials.watch(self._credential_changed),
        ]
        for cluster in self._clusters.list():
            self._follow(cluster.name)

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
        """Iterate over the running ones."""
        return iter(list(self._running.values()))

    def get(self, name: str) -> NodeCluster | None:
        """Return the cluster with that name if it runs."""
        return self._running.get(name)

    def status(self, name: str) -> SSHStatus | None:
        """Return the state of a cluster's nodes; None if it does not run and has no problem."""
        running = self._running.get(name)
        if running is not None:
            return running.status()
        problem = self._problems.get(name)
        return None if problem is None else SSHStatus(last_error=problem)

    def readings(self) -> Iterator[tuple[str, Reading]]:
        """Yield the values of the metrics, by cluster, in the order of names."""
        for each in sorted(self, key=lambda each: each.cluster.name):
            yield each.cluster.name, Reading.of(each.tunneler)

    def kubelets(self, name: str) -> Kubelets | None:
        """Return the kubelets of a cluster; None while they are turned off."""
        running = self._running.get(name)
        return None if running is None else running.kubelets

    def unhealthy(self) -> str:
        """Return the problem that a health check reports; empty if there is none."""
        for each in self:
            try:
                each.tunneler.check_healthy()
            except TunnelSyncUnhealthy as e:
                return str(e)
        return ""

    def check_files(self, name: str, spec: SSHSpec, before: SSHSpec | None = None) -> None:
        """Check the files that a cluster's record names; see `NodeFiles.check`."""
        self._files.check(name, spec, before)

    def _warn_of_files(self) -> None:
        """Log which records name files that are no longer read, and how to move these."""
        for cluster in self._clusters.list():
            problems = [] if cluster.ssh is None else self._files.problems(cluster.name, cluster.ssh)
            for problem in problems:
                self._log.error("{cluster}: {problem}", cluster=cluster.name, problem=problem)
            if problems:
                self._problems[cluster.name] = "; ".join(problems)  # prevents a second log line

    # Following the records

    def _follow(self, name: str) -> None:
        cluster = self._clusters.get(name)
        running = self._running.get(name)
        if cluster is None or cluster.ssh is None or not cluster.enabled:
            if self._problems.pop(name, None) is not None:
                self._tunnels.explain(name, None)
            if running is not None:
                self._end(name, "it was removed" if cluster is None else "it is disabled")
        elif running is None or not running.change(cluster):
            if running is not None:
                self._end(name, "its type has changed")
            self._begin(cluster)

    def _begin(self, cluster: Cluster) -> None:
        try:
            running = self._create(cluster)
        except ConfigurationError as e:
            if self._problems.get(cluster.name) != str(e):
                self._log.error("{cluster}: {problem}", cluster=cluster.name, problem=str(e))
            self._problems[cluster.name] = str(e)
            self._tunnels.explain(cluster.name, lambda: self._problems.get(cluster.name, ""))
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
        else:
            self._follow(name)

    # Conditions

    async def report(self) -> None:
        """Retry clusters that could not be set up, and update the conditions; see `REPORT_PERIOD`."""
        if not self.running:
            return
        for name in list(self._problems):
            self._follow(name)
        for each in self:
            await self._report(each)

    async def _report(self, running: NodeCluster) -> None:
        name = running.cluster.name
        for wanted in _conditions(running):
            cluster = self._clusters.get(name)
            if cluster is None:
                return
            known = cluster.condition(wanted.type)
            if known is not None and _content(known) == _content(wanted):
                continue
            try:
                await self._clusters.set_condition(
                    name, wanted.type, wanted.status, wanted.reason, wanted.message
                )
            except NotFound:
                return  # removed meanwhile


def _content(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _conditions(running: NodeCluster) -> Sequence[Condition]:
    """Return the conditions of a cluster, without times."""
    found = []
    status = running.tunneler.status()
    try:
        running.tunneler.check_healthy()
    except TunnelSyncUnhealthy:
        message = (
            status.last_error or "The nodes were not listed, or the key was not installed, for too long."
        )
        found.append(Condition(NODES_SYNCED, "False", "TooLongAgo", message, 0))
    else:
        found += _synced(status)
    return found


def _synced(status: SSHStatus) -> Sequence[Condition]:
    """Return the condition while nothing is overdue; none before the first listing or error."""
    if status.last_sync is None:
        error = status.last_error
        return [Condition(NODES_SYNCED, "Unknown", "NotYet", error, 0)] if error else []
    text = "The nodes are listed and, if the cloud provider can do it, the key is installed."
    if status.last_error:
        text = f"The last attempt failed, but a recent one succeeded: {status.last_error}"
    return [Condition(NODES_SYNCED, "True", "Synced", text, 0)]
