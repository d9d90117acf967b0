"""Events of clusters with their number and times, kept for an hour after the last occurrence.

An event is written when it first occurs.  Further occurrences are counted in memory, and written at most once
in `WRITE_PERIOD`, or in the store's `quiet_period` if that is longer, so a cluster that flaps does not load
the store.  Reads contain them at once: after a recovery, the last event of a cluster is the recovery.  A stop
writes them.

Tower's own events have a fixed set of reasons; those about keys have one event for each key, up to a limit.
Clients may add events of other components, with any reasons, but only a limited number for each cluster.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import asdict, define, evolve, field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from tower.clusters.cluster import Cluster, create_owned
from tower.errors import AlreadyExists, Conflict, NotFound, TowerError
from tower.escaping import escaped, shortened
from tower.store import IStore
from tower.store.kinds import CLUSTERS, EVENTS
from tower.store.records import (
    Delete,
    Event,
    EventType,
    Operation,
    Record,
    StoreFailed,
    Update,
    Value,
    Watch,
    known_fields,
)
from tower.store.write_failures import WriteFailures

#: Shortest time between two writes of one event of one cluster, s.
WRITE_PERIOD = 300.0

#: Time until a failed write is tried again, s.
RETRY = 30.0

#: How long an event is kept after its last occurrence, s.
KEPT = 3600.0

#: Most events of clients for one cluster, each with another component or reason.
CLIENT_LIMIT = 32

#: Most of Tower's own events about keys for one cluster; further keys share one event for each reason.
KEY_LIMIT = 32

#: Longest message, characters, and largest count.
MESSAGE_LIMIT = 1024
COUNT_LIMIT = 2**31 - 1

#: The component of Tower's own events.
TOWER: Final = "tower-proxy"

#: Importance of an event, as in Kubernetes.
EventLevel: TypeAlias = Literal["Normal", "Warning"]


@frozen
class ClusterEvent:
    """An event of a cluster.

    :ivar name: unique for each cluster, component and reason, and for each key.
    :ivar first: time of the first occurrence, s since the epoch; *last* of the last one.
    :ivar component: the program that reported it.
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
    component: str = TOWER


@define
class _Recent:
    """An event in memory, with all occurrences.

    :ivar written: when it was last written, s since the epoch.
    :ivar is_changed: whether the store does not have the last occurrence yet.
    """

    event: ClusterEvent
    written: float
    is_changed: bool = False


class TooManyEvents(TowerError):
    """Clients have added too many different events of one cluster."""

    def __init__(self, cluster: str) -> None:
        super().__init__(
            f"cluster {cluster} has {CLIENT_LIMIT} events of clients, the limit: "
            "use fewer reasons, or wait until some expire"
        )


@define(eq=False, repr=False)
class ClusterEvents:
    """The events in a store.

    :param clock: its ``seconds()`` are since the epoch.
    """

    _store: IStore
    _clock: IReactorTime
    _period: float = field(init=False)
    _failures: WriteFailures = field(init=False)
    _recent: dict[str, _Recent] = field(factory=dict, init=False)
    _clients: Counter[str] = field(factory=Counter, init=False)  # number of clients' events, by uid
    _keys: Counter[str] = field(factory=Counter, init=False)  # number of events about keys, by uid

    def __attrs_post_init__(self) -> None:
        self._period = max(WRITE_PERIOD, self._store.quiet_period)
        self._failures = WriteFailures(self._clock, "events of clusters")
        for event in self.list():
            self._remember(_Recent(event, event.last))

    @property
    def now(self) -> float:
        """The time, s since the epoch."""
        return self._clock.seconds()

    def get(self, name: str) -> ClusterEvent | None:
        """Return one event with all occurrences, or None."""
        record = self._store.get(EVENTS, name)
        return None if record is None else self._current(record)

    def list(self) -> list[ClusterEvent]:
        """Return all events with all occurrences, by name."""
        records = self._store.snapshot(EVENTS)
        return [self._current(records[name]) for name in sorted(records)]

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

    def record(
        self, cluster: Cluster, reason: str, message: str, level: EventLevel = "Normal", key: str = ""
    ) -> None:
        """Record an occurrence of one of Tower's own events; it is written now or later.

        :param key: the key that the event is about, if any; occurrences are counted for each key.
        """
        if key and _name(cluster, TOWER, reason, key) not in self._recent:
            key = key if self._keys[cluster.uid] < KEY_LIMIT else ""
        recent = self._note(cluster, TOWER, reason, message, level, key=key)
        if self._is_due(recent):
            self._write(recent)

    async def record_of_client(
        self,
        cluster: Cluster,
        component: str,
        reason: str,
        message: str,
        level: EventLevel = "Normal",
        count: int = 0,
    ) -> ClusterEvent:
        """Record an occurrence of an event of another *component*; return the event with all occurrences.

        :param count: occurrences that the client knows of.
        :raise TooManyEvents: the cluster has `CLIENT_LIMIT` others.
        :raise StoreFailed: it could not be written.
        """
        is_new = _name(cluster, component, reason) not in self._recent
        if is_new and self._clients[cluster.uid] >= CLIENT_LIMIT:
            raise TooManyEvents(cluster.name)
        recent = self._note(cluster, component, reason, message, level, count)
        if self._is_due(recent):
            await self._written(recent)
        stored = self.get(recent.event.name)
        return evolve(recent.event, resource_version=0 if stored is None else stored.resource_version)

    def sweep(self) -> None:
        """Write the occurrences that were counted, and remove old events; call it every minute or so."""
        now = self._clock.seconds()
        for name, recent in list(self._recent.items()):
            if now - recent.event.last >= KEPT or now < recent.written:
                self._forget(name)
            elif recent.is_changed and self._is_due(recent):
                self._write(recent)
        old: list[Operation] = [
            Delete(EVENTS, record.name, record.version)
            for record in self._store.snapshot(EVENTS).values()
            if not 0 <= now - record.value["last"] < KEPT
        ]
        if old:
            self._store.transact(old).addErrback(lambda failure: failure.trap(TowerError))

    def flush(self) -> Deferred[Any]:
        """Write all occurrences that were counted; for a stop."""
        updates: list[Operation] = []
        for name, recent in self._recent.items():
            if recent.is_changed and self._store.get(EVENTS, name) is not None:
                updates.append(Update(EVENTS, name, _value(recent.event)))
                recent.is_changed, recent.written = False, self._clock.seconds()
        if not updates:
            return succeed(None)
        return self._store.transact(updates).addErrback(self._failures.failed)

    def _current(self, record: Record) -> ClusterEvent:
        """Return the event in *record* with the occurrences that are not written yet."""
        event, recent = _decode(record), self._recent.get(record.name)
        return event if recent is None else evolve(recent.event, resource_version=event.resource_version)

    def _note(
        self,
        cluster: Cluster,
        component: str,
        reason: str,
        message: str,
        level: EventLevel,
        count: int = 0,
        key: str = "",
    ) -> _Recent:
        """Count an occurrence in memory."""
        now = self._clock.seconds()
        name = _name(cluster, component, reason, key)
        recent = self._recent.get(name)
        if recent is None:
            event = ClusterEvent(
                name, 0, cluster.name, cluster.uid, reason, level, "", now, now, count=0, component=component
            )
            recent = self._remember(_Recent(event, now - self._period))
        recent.event = evolve(
            recent.event,
            level=level,
            message=shortened(escaped(message), MESSAGE_LIMIT),
            last=now,
            count=min(max(recent.event.count + 1, count), COUNT_LIMIT),
        )
        recent.is_changed = True
        return recent

    def _is_due(self, recent: _Recent) -> bool:
        return self._clock.seconds() - recent.written >= self._period

    def _remember(self, recent: _Recent) -> _Recent:
        event = recent.event
        self._recent[event.name] = recent
        if event.component != TOWER:
            self._clients[event.cluster_uid] += 1
        elif _is_of_key(event):
            self._keys[event.cluster_uid] += 1
        return recent

    def _forget(self, name: str) -> None:
        event = self._recent.pop(name).event
        if event.component != TOWER:
            self._clients -= Counter((event.cluster_uid,))
        elif _is_of_key(event):
            self._keys -= Counter((event.cluster_uid,))

    def _write(self, recent: _Recent) -> None:
        Deferred.fromCoroutine(self._written(recent)).addErrback(self._failures.failed)

    async def _written(self, recent: _Recent) -> None:
        recent.is_changed, recent.written = False, self._clock.seconds()
        try:
            await self._put(recent.event)
        except StoreFailed:
            recent.is_changed, recent.written = True, recent.written - self._period + RETRY
            raise
        self._failures.worked()

    async def _put(self, event: ClusterEvent) -> None:
        value = _value(event)
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


def _name(cluster: Cluster, component: str, reason: str, key: str = "") -> str:
    """Return the name of an event; component, reason and key are printable."""
    text = reason if component == TOWER else f"{component}\n{reason}"
    if key:
        text = f"{component}\n{reason}\n{key}"
    return _hashed(cluster.name, cluster.uid, text)


def _hashed(cluster: str, uid: str, text: str) -> str:
    digest = hashlib.sha256(f"{uid}/{text}".encode()).hexdigest()
    return f"{cluster}.{digest[:16]}"


def _is_of_key(event: ClusterEvent) -> bool:
    """Return whether one of Tower's own events is about one key."""
    return event.name != _hashed(event.cluster, event.cluster_uid, event.reason)


def _value(event: ClusterEvent) -> Value:
    return asdict(event, filter=lambda attribute, _: attribute.name not in ("name", "resource_version"))


def _decode(record: Record) -> ClusterEvent:
    return ClusterEvent(
        name=record.name, resource_version=record.version, **known_fields(ClusterEvent, record.value)
    )
