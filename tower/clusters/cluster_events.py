"""Events of clusters with their number and times, kept for an hour after the last occurrence.

An event is written when it first occurs.  Further occurrences are counted in memory, and written at most once
in `WRITE_PERIOD`, so a cluster that flaps does not load the store.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from attrs import asdict, define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.clusters.cluster import Cluster, create_owned
from tower.errors import AlreadyExists, Conflict, NotFound, TowerError
from tower.escaping import escaped, shortened
from tower.store import IStore
from tower.store.kinds import CLUSTERS, EVENTS
from tower.store.records import Delete, Event, EventType, Operation, Record, Watch

#: Shortest time between two writes of one event of one cluster, s.
WRITE_PERIOD = 300.0

#: How long an event is kept after its last occurrence, s.
KEPT = 3600.0

#: Most different reasons of one cluster, and longest message, characters.
REASON_LIMIT = 32
MESSAGE_LIMIT = 1024

#: Importance of an event, as in Kubernetes.
EventLevel: TypeAlias = Literal["Normal", "Warning"]


@frozen
class ClusterEvent:
    """An event of a cluster.

    :ivar name: unique for each cluster and reason.
    :ivar first: time of the first occurrence, s since the epoch; *last* of the last one.
    """

    name: str
    resource_version: int
    cluster: str
    cluster_uid: str
    reason: str
    level: EventLevel
    message: str
    first: float
    last: float
    count: int = 1


@define
class _Recent:
    """An event in memory.

    :ivar written: when it was last written, s since the epoch.
    :ivar pending: occurrences that are not written yet.
    """

    event: ClusterEvent
    written: float
    pending: int = 0


@define(eq=False, repr=False)
class ClusterEvents:
    """The events in a store.

    :param clock: its ``seconds()`` are since the epoch.
    """

    _log = Logger()

    _store: IStore
    _clock: IReactorTime
    _recent: dict[str, _Recent] = field(factory=dict, init=False)
    _reasons: Counter[str] = field(factory=Counter, init=False)  # number of them, by the cluster's uid

    def __attrs_post_init__(self) -> None:
        for event in self.list():
            self._remember(_Recent(event, event.last))

    def get(self, name: str) -> ClusterEvent | None:
        """Return one event, or None."""
        record = self._store.get(EVENTS, name)
        return None if record is None else _decode(record)

    def list(self) -> list[ClusterEvent]:
        """Return all events, by name."""
        records = self._store.snapshot(EVENTS)
        return [_decode(records[name]) for name in sorted(records)]

    def changes(self, since: int) -> Sequence[tuple[EventType, ClusterEvent]]:
        """Return the changes after a resource version; see `IStore.changes`."""
        return [(event.type, _decode(event.record)) for event in self._store.changes(EVENTS, since)]

    def check(self, since: int) -> None:
        """Check that the changes after a resource version are known.

        :raise Expired: they are not.
        """
        self._store.changes(EVENTS, since)

    def watch(self, callback: Callable[[EventType, ClusterEvent], None]) -> Watch:
        """Call *callback* for each event ADDED, MODIFIED or DELETED from now on."""

        def changed(event: Event) -> None:
            callback(event.type, _decode(event.record))

        return self._store.watch(EVENTS, changed)

    def record(self, cluster: Cluster, reason: str, message: str, level: EventLevel = "Normal") -> None:
        """Record an occurrence; it is written now or later."""
        now = self._clock.seconds()
        name = _name(cluster, reason)
        text = shortened(escaped(message), MESSAGE_LIMIT)
        recent = self._recent.get(name)
        if recent is None:
            if self._reasons[cluster.uid] >= REASON_LIMIT:
                return
            event = ClusterEvent(name, 0, cluster.name, cluster.uid, reason, level, text, now, now, count=0)
            recent = self._remember(_Recent(event, now - WRITE_PERIOD))
        recent.event = evolve(recent.event, level=level, message=text, last=now)
        recent.pending += 1
        if now - recent.written >= WRITE_PERIOD:
            self._write(recent)

    def sweep(self) -> None:
        """Write the occurrences that were counted, and remove old events; call it every minute or so."""
        now = self._clock.seconds()
        for name, recent in list(self._recent.items()):
            if now - recent.event.last >= KEPT or now < recent.written:
                self._forget(name)
            elif recent.pending and now - recent.written >= WRITE_PERIOD:
                self._write(recent)
        old: list[Operation] = [
            Delete(EVENTS, record.name, record.version)
            for record in self._store.snapshot(EVENTS).values()
            if not 0 <= now - record.value["last"] < KEPT
        ]
        if old:
            self._store.transact(old).addErrback(lambda failure: failure.trap(TowerError))

    def _remember(self, recent: _Recent) -> _Recent:
        self._recent[recent.event.name] = recent
        self._reasons[recent.event.cluster_uid] += 1
        return recent

    def _forget(self, name: str) -> None:
        uid = self._recent.pop(name).event.cluster_uid
        self._reasons[uid] -= 1
        if not self._reasons[uid]:
            del self._reasons[uid]

    def _write(self, recent: _Recent) -> None:
        event = recent.event = evolve(recent.event, count=recent.event.count + recent.pending)
        recent.pending, recent.written = 0, self._clock.seconds()
        Deferred.fromCoroutine(self._put(event)).addErrback(
            lambda failure: self._log.failure(
                "cannot write an event of cluster {cluster}", failure, cluster=event.cluster
            )
        )

    async def _put(self, event: ClusterEvent) -> None:
        value = asdict(event, filter=lambda attribute, _: attribute.name not in ("name", "resource_version"))
        owner = self._store.get(CLUSTERS, event.cluster)
        if owner is None or owner.value["uid"] != event.cluster_uid:
            return  # it was removed, with its events
        try:
            if self._store.get(EVENTS, event.name) is not None:
                await self._store.update(EVENTS, event.name, value)
            else:
                await create_owned(self._store, owner, EVENTS, event.name, value)
        except (NotFound, AlreadyExists, Conflict):
            return  # the cluster was removed meanwhile, or the event was purged


def _name(cluster: Cluster, reason: str) -> str:
    digest = hashlib.sha256(f"{cluster.uid}/{reason}".encode()).hexdigest()
    return f"{cluster.name}.{digest[:16]}"


def _decode(record: Record) -> ClusterEvent:
    return ClusterEvent(name=record.name, resource_version=record.version, **record.value)
