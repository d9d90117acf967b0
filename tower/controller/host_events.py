"""Events in the host cluster, as ``kubectl describe`` shows them.

An event that occurs again is counted, and written at most once in `PAUSE`.  Writing events is never waited
for, and a failure is only logged.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.controller.objects.host_cluster import HostCluster
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.well_known import EVENTS
from tower.kube.timestamps import timestamp

#: Shortest time between two writes of one event, s.
PAUSE = 300.0

#: Most events in memory, and most writes in progress; further events are dropped.
MEMORY = 1000
WRITES = 50

#: Longest message, characters; a limit of Kubernetes.
MESSAGE_LIMIT = 1024

#: Namespace of events about objects without a namespace.
NAMESPACE = "default"

_COMPONENT = "tower-proxy"

EventType: TypeAlias = Literal["Normal", "Warning"]


@define(eq=False)
class _Occurrences:
    first: float
    written: float
    count: int = 1
    is_created: bool = False


@define(eq=False)
class HostEvents:
    """Writes events about ``Cluster`` objects.

    :param now: returns the time, s since the epoch.
    """

    _log = Logger()

    _api: HostAPI
    _now: Callable[[], float]
    _recent: OrderedDict[str, _Occurrences] = field(factory=OrderedDict, init=False)
    _writes: set[Deferred[None]] = field(factory=set, init=False)

    def record(self, cluster: HostCluster, kind: EventType, reason: str, message: str) -> None:
        """Record an occurrence of an event."""
        message = message[:MESSAGE_LIMIT]
        digest = hashlib.sha256("\n".join((cluster.uid, kind, reason, message)).encode()).hexdigest()
        name, now = f"{cluster.name}.{digest[:16]}", self._now()
        recent = self._recent.get(name)
        if recent is None:
            recent = self._recent[name] = _Occurrences(now, now)
            if len(self._recent) > MEMORY:
                self._recent.popitem(last=False)
        else:
            self._recent.move_to_end(name)
            recent.count += 1
            if 0 <= now - recent.written < PAUSE:
                return
            recent.written = now
        if len(self._writes) >= WRITES:
            return
        writing = Deferred.fromCoroutine(self._write(name, cluster, kind, reason, message, recent))
        self._writes.add(writing)
        writing.addErrback(self._failed)
        writing.addBoth(lambda _: self._writes.discard(writing))

    def stop(self) -> None:
        """Cancel the writes in progress."""
        for writing in list(self._writes):
            writing.cancel()

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("cannot write an event", failure)

    async def _write(
        self,
        name: str,
        cluster: HostCluster,
        kind: EventType,
        reason: str,
        message: str,
        recent: _Occurrences,
    ) -> None:
        last = {"count": recent.count, "lastTimestamp": timestamp(recent.written)}
        event: dict[str, Any] = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "involvedObject": cluster.owner,
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": timestamp(recent.first),
            **last,
        }
        try:
            if recent.is_created:
                await self._api.patch(EVENTS, name, last, NAMESPACE)
            else:
                await self._api.create(EVENTS, event, NAMESPACE)
            recent.is_created = True
        except APIError as e:
            if e.reason == "AlreadyExists":  # by an earlier leader
                recent.is_created, recent.written = True, 0.0
            else:
                recent.is_created = False
                self._log.debug("event of cluster {cluster} not written: {e}", cluster=cluster.name, e=e)
