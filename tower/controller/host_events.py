"""Events in the host cluster, as ``kubectl describe`` shows them.

An event that occurs again is counted, and written at most once in `PAUSE`, or when the cluster was served or
withdrawn in between: the event with the latest time then has the current state.  Writing events is never
waited for, and a failure is only logged.

The names are new with each leader, as those of client-go, so a late write changes no event of another leader.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar

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

K = TypeVar("K")
V = TypeVar("V")


@define(eq=False)
class _Occurrences:
    name: str
    first: float
    written: float = -math.inf
    turn: int = 0
    count: int = 0
    is_created: bool = False


@define(eq=False)
class _ClusterState:
    is_served: bool | None = None
    turn: int = 0  # number of changes


@define(eq=False)
class HostEvents:
    """Writes events about ``Cluster`` objects.

    :param now: returns the time, s since the epoch.
    """

    _log = Logger()

    _api: HostAPI
    _now: Callable[[], float]
    _recent: OrderedDict[tuple[str, str, str, str], _Occurrences] = field(factory=OrderedDict, init=False)
    _states: OrderedDict[str, _ClusterState] = field(factory=OrderedDict, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)
    _writes: set[Deferred[None]] = field(factory=set, init=False)

    def record(
        self,
        cluster: HostCluster,
        kind: EventType,
        reason: str,
        message: str,
        *,
        is_served: bool | None = None,
    ) -> None:
        """Record an occurrence of an event.

        :param is_served: whether the cluster is served since this event; None: as before.
        """
        now, message = self._now(), message[:MESSAGE_LIMIT]
        state = _recall(self._states, cluster.uid, _ClusterState)
        if is_served is not None and is_served != state.is_served:
            state.is_served, state.turn = is_served, state.turn + 1
        recent = _recall(
            self._recent,
            (cluster.uid, kind, reason, message),
            lambda: _Occurrences(self._name(cluster, now), now),
        )
        recent.count += 1
        is_soon = 0 <= now - recent.written < PAUSE and recent.turn == state.turn
        if is_soon or len(self._writes) >= WRITES:
            return
        recent.written, recent.turn = now, state.turn
        writing = Deferred.fromCoroutine(self._write(cluster, kind, reason, message, recent))
        self._writes.add(writing)
        writing.addErrback(self._failed)
        writing.addBoth(lambda _: self._writes.discard(writing))

    def _name(self, cluster: HostCluster, now: float) -> str:
        """Return a name that no other leader gives."""
        return f"{cluster.name}.{int(now * 1e6):x}{next(self._numbers) & 0xFFFF:04x}"

    def stop(self) -> None:
        """Cancel the writes in progress."""
        for writing in list(self._writes):
            writing.cancel()

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("cannot write an event", failure)

    async def _write(
        self,
        cluster: HostCluster,
        kind: EventType,
        reason: str,
        message: str,
        recent: _Occurrences,
    ) -> None:
        last = {"count": recent.count, "lastTimestamp": timestamp(recent.written)}
        event: dict[str, Any] = {
            "metadata": {"name": recent.name, "namespace": NAMESPACE},
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
                await self._api.patch(EVENTS, recent.name, last, NAMESPACE)
            else:
                await self._api.create(EVENTS, event, NAMESPACE)
            recent.is_created = True
        except APIError as e:
            recent.is_created = e.reason == "AlreadyExists"  # its answer was lost
            self._log.debug("event of cluster {cluster} not written: {e}", cluster=cluster.name, e=e)


def _recall(known: OrderedDict[K, V], key: K, new: Callable[[], V]) -> V:
    """Return the value of *key*, which is the last one to be forgotten."""
    if key not in known:
        known[key] = new()
        if len(known) > MEMORY:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]
