"""The controller: follows the host's objects and the records, and reconciles the clusters that changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from tower.clusters import Cluster
from tower.clusters.records import Records
from tower.controller.host_access import HostAccess
from tower.controller.host_events import HostEvents
from tower.controller.host_metrics import HostCollector
from tower.controller.informer import Informer
from tower.controller.kubeconfig_issuer import KubeconfigIssuer
from tower.controller.objects.host_cluster import HostCluster, HostObjects
from tower.controller.objects.service_objects import (
    CLUSTER_LABEL,
    cluster_of,
    cluster_of_slice,
    is_of_selector,
    service_name,
    slice_names,
)
from tower.controller.port_settlement import NoPort
from tower.controller.prerequisites import Prerequisites, problem_of
from tower.controller.reconciler import InvalidName, Reconciler
from tower.controller.work_queue import WorkQueue
from tower.errors import Conflict, NotFound, TowerError
from tower.kube.client import WEBHOOK_CURE, APIError
from tower.kube.rest.host_api import Object
from tower.kube.rest.host_link import HostLink
from tower.kube.rest.reflector import Reflector
from tower.kube.rest.well_known import CLUSTERS, ENDPOINT_SLICES, SECRETS, SERVICES
from tower.reactor.repeating import periodic
from tower.store.records import EventType, Watch

#: Time between attempts to work around a missing prerequisite, s.
PROBE_PERIOD = 3.0

#: Time between sweeps of the ports, s.
PORTS_PERIOD = 600.0

#: Time between checks whether versions of agents and members have changed, s.
FACTS_PERIOD = 300.0

#: Time for which `Controller.known` waits, s.
PATIENCE = 5.0

#: Time after which an unchanged cluster is compared again, s.
RESYNC = 3600.0

_CONFLICT = 409


class Controller(Service):
    """Runs in the leader.

    :param issuer: of the kubeconfigs for the host's programs.
    :param epoch: returns the time, s since the epoch.
    :param set_names: called with a cluster and all names of its Service, for the certificate of its port.
    :param uses_tokens: whether ``kubesphere-v1`` agents are allowed.
    :ivar metrics: of the host cluster.
    :ivar known: fires once all objects are known and the clusters' ports have their names, or after
        `PATIENCE` or the end.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        host: HostAccess,
        records: Records,
        issuer: KubeconfigIssuer,
        epoch: Callable[[], float],
        set_names: Callable[[str, Sequence[str]], None],
        *,
        uses_tokens: bool = True,
        random: Random | None = None,
    ) -> None:
        api, settings = host.api, host.settings
        self._records = records
        self._namespace = settings.namespace
        self._random = random or Random()  # noqa: S311 - spreads load
        self._events = HostEvents(api, epoch)
        self._reconciler = Reconciler(
            host, records, issuer, self._events, set_names, epoch, uses_tokens=uses_tokens
        )
        self._queue = WorkQueue(reactor, self._work, self._failed)
        link = HostLink.of(reactor) if host.link is None else host.link
        self.metrics = HostCollector(link, self._queue)
        self._prerequisites = Prerequisites()
        add, view, part = self._queue.add, _view, _compared_part
        self._hosts = Informer(HostCluster.of, add, self._begin)
        self._services = Informer(view, lambda name: add(cluster_of(name)), self._begin, part)
        self._slices = Informer(view, self._slice_changed, self._begin, part)
        self._secrets = Informer(_digest, lambda name: add(cluster_of(name)), self._begin)
        self._reflectors = {
            resource.name: Reflector(
                api,
                resource,
                namespace,
                follower,
                reactor,
                self._random.random,
                label_selector=selector,
                group=link.reflectors,
            )
            for resource, namespace, follower, selector in (
                (CLUSTERS, None, self._hosts, ""),
                (SERVICES, settings.namespace, self._services, CLUSTER_LABEL),
                (ENDPOINT_SLICES, settings.namespace, self._slices, CLUSTER_LABEL),
                (SECRETS, settings.namespace, self._secrets, CLUSTER_LABEL),
            )
        }
        self._periodic = [
            periodic(reactor, PROBE_PERIOD, self._probe),
            periodic(reactor, PORTS_PERIOD, self._sweep_ports),
            periodic(reactor, FACTS_PERIOD, self._write_facts),
        ]
        self._is_outside = settings.selector is None
        self._left_slices: set[str] = set()  # see `_slice_changed`
        self._reactor = reactor
        self.known: Deferred[None] = Deferred()
        self._patience: IDelayedCall | None = None
        self._logged: dict[str, str] = {}  # failures, by cluster
        self._watch: Watch | None = None
        self._is_working = False

    @property
    def problems(self) -> list[str]:
        """Problems of the host cluster that keep the controller from its work, with their cures."""
        found = [problem.text for problem in self._prerequisites.problems]
        return found + [each.failure for each in self._reflectors.values() if each.failure]

    def startService(self) -> None:
        """Follow the host's objects and the records; the work begins once all are known."""
        super().startService()  # type: ignore[no-untyped-call]
        self._watch = self._records.clusters.watch(self._recorded)
        for reflector in self._reflectors.values():
            reflector.start()
        for each in self._periodic:
            each.startService()
        self._patience = self._reactor.callLater(PATIENCE, self._now_known)

    def stopService(self) -> Deferred[Any]:
        """Stop; fires when no work is left."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._watch is not None:
            self._watch.stop()
        for each in self._periodic:
            each.stopService()
        for reflector in self._reflectors.values():
            reflector.stop()
        self._events.stop()
        self._now_known()
        return self._queue.stop()

    def reached(self, name: str) -> None:
        """Retry a cluster whose tunnels changed: a webhook may allow now what it denied."""
        if name in self._logged:
            self._queue.add(name)

    def _begin(self) -> None:
        """Begin to work once all objects are known: a part of them may lack an object that exists."""
        informers = (self._hosts, self._services, self._slices, self._secrets)
        if self.running and not self._is_working and all(each.is_synced for each in informers):
            self._is_working = True
            for cluster in self._hosts.views():
                self._reconciler.set_names(cluster, self._services.get(service_name(cluster.name)))
            self._now_known()
            self._queue.start()

    def _now_known(self) -> None:
        """Fire `known` once."""
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        if not self.known.called:
            self.known.callback(None)

    def _recorded(self, event: EventType, cluster: Cluster) -> None:
        """Follow the records; changes with each connection of an agent are ignored."""
        host = self._hosts.get(cluster.name)
        is_settled = host is not None and self._records.clusters.ports.owns(cluster)
        if event != "MODIFIED" or not is_settled:
            self._queue.add(cluster.name)

    def _slice_changed(self, name: str) -> None:
        """Remember a slice that is left from the time when the Service selected pods, to remove it."""
        obj = self._slices.get(name)
        if self._is_outside and obj is not None and is_of_selector(obj):
            self._left_slices.add(name)
        else:
            self._left_slices.discard(name)
        self._queue.add(cluster_of_slice(name))

    async def _work(self, name: str) -> float | None:
        cluster = self._hosts.get(name)
        service = self._services.get(service_name(name))
        left = sorted(each for each in self._left_slices if cluster_of_slice(each) == name)
        slices = [obj for each in [*slice_names(name), *left] if (obj := self._slices.get(each))]
        delay = await self._reconciler.reconcile(name, HostObjects(cluster, service, slices))
        if self._logged.pop(name, None) is not None:
            self._log.info("cluster {cluster} is reconciled", cluster=name)
        if self._prerequisites.works(name):
            self._queue.retry_failed()
        if cluster is None:
            return None
        resync = RESYNC * self._random.uniform(1.0, 1.5)
        return resync if delay is None else min(delay, resync)

    def _failed(self, name: str, failure: Failure, delay: float) -> None:
        error = failure.value
        if not isinstance(error, TowerError):
            self._log.failure("cluster {cluster} cannot be reconciled", failure, cluster=name)
            return
        code = error.code if isinstance(error, APIError) else None
        problem = problem_of(error, self._namespace)
        if problem is not None:
            self._prerequisites.missing(problem, name)
            self._report(name, problem.reason, problem.text, is_lasting=True)
        elif isinstance(error, Conflict | NotFound) or code == _CONFLICT:
            self._log.debug("cluster {cluster}: {error}; retrying", cluster=name, error=error)
        else:
            described = f"{error}{WEBHOOK_CURE if isinstance(error, APIError) and error.webhook else ''}"
            level = LogLevel.debug if self._logged.get(name) == described else LogLevel.warn
            self._logged[name] = described
            text = "cluster {cluster} cannot be reconciled; retrying in {delay:g} s: {error}"
            self._log.emit(level, text, cluster=name, delay=delay, error=described)
            reason = type(error).__name__ if isinstance(error, NoPort | InvalidName) else "ReconcileFailed"
            self._report(name, reason, described, is_lasting=code is None)

    def _report(self, name: str, reason: str, text: str, *, is_lasting: bool) -> None:
        cluster = self._hosts.get(name)
        if cluster is not None:
            self._events.record(cluster, "Warning", reason, text, is_served=False)
            reporting = self._reconciler.failed(cluster, reason, text, is_lasting=is_lasting)
            # the next attempt reports it
            Deferred.fromCoroutine(reporting).addErrback(lambda failure: failure.trap(TowerError))

    def _probe(self) -> None:
        """Try again what missing prerequisites stop, one cluster for each."""
        for problem in self._prerequisites.problems:
            self._queue.add(self._prerequisites.stopped_by(problem))

    async def _sweep_ports(self) -> None:
        if self._is_working:
            await self._records.port_assignment.sweep()

    async def _write_facts(self) -> None:
        """Write versions that changed without a change of conditions, such as that of an upgraded member."""
        for cluster in self._hosts.views() if self._is_working else ():
            try:
                await self._reconciler.write_facts(cluster)
            except TowerError as e:
                self._log.debug("status of cluster {cluster} not written: {e}", cluster=cluster.name, e=e)


def _view(obj: Object) -> Object:
    """Return the part of a Service or EndpointSlice that the controller reads, with its version."""
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences")
    metadata = {key: obj["metadata"][key] for key in kept if key in obj["metadata"]}
    return {**obj, "metadata": metadata}


def _compared_part(view: Object) -> Object:
    """Return what of a view needs work if it changes: all but the version."""
    metadata = {key: value for key, value in view["metadata"].items() if key != "resourceVersion"}
    return {**view, "metadata": metadata}


def _digest(secret: Object) -> bytes:
    """Return a digest of a Secret's contents, which need not be in memory, to notice changes."""
    parts = (secret.get("data"), secret["metadata"].get("annotations"), secret["metadata"]["uid"])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()
