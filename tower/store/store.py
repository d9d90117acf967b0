"""The interface of record stores, and their common implementation.

The interface fits a remote Kubernetes API, too.  Writes are asynchronous with optimistic concurrency, and are
answered when they are durable.  Reads are synchronous, from a snapshot in memory that applies the committed
writes in order.  A watch delivers the events of a kind; those after a known version can be listed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from tower.errors import TowerError
from tower.metrics.histogram import DELAY_BOUNDS, Histogram
from tower.store.kinds import KINDS
from tower.store.records import (
    Create,
    Delete,
    DeleteWhere,
    Event,
    EventType,
    Expired,
    Operation,
    Record,
    RecordChanged,
    RecordExists,
    RecordMissing,
    Require,
    StoreStopped,
    Update,
    Value,
    Watch,
    detached,
    encode,
)

#: Called with the events of a transaction, after the commit and before the snapshot has them; must not raise.
Committed: TypeAlias = Callable[[Sequence[Event]], None]

#: Number of events of each kind that are kept for `IStore.changes`.
EVENT_LIMIT = 1000


@define(eq=False)
class Plan:
    """The changes of a transaction, computed without applying them.

    :param version: of the last committed change.
    """

    version: int
    _lookup: Callable[[str, str], Record | None]
    _select: Callable[[str], Iterable[Record]]
    events: list[Event] = field(factory=list, init=False)
    _changed: dict[tuple[str, str], Record | None] = field(factory=dict, init=False)

    def run(self, operations: Sequence[Operation]) -> list[Record | None]:
        """Return the result of each operation, and collect the changes in `events`.

        :raise TowerError: an operation fails, and so does the transaction.
        """
        return [self._one(operation) for operation in operations]

    def _one(self, operation: Operation) -> Record | None:
        match operation:
            case Create(kind, name, value):
                if self._current(kind, name) is not None:
                    raise RecordExists(kind, name)
                return self._put("ADDED", kind, name, value)
            case Update(kind, name, value, version):
                current = self._expect(kind, name, version)
                if encode(current.value) == encode(value):
                    return current
                return self._put("MODIFIED", kind, name, value)
            case Delete(kind, name, version):
                return self._drop(self._expect(kind, name, version))
            case DeleteWhere(kind, key, equals):
                names = {record.name for record in self._select(kind)}
                names.update(name for (changed, name) in self._changed if changed == kind)
                for name in sorted(names):
                    found = self._current(kind, name)
                    if found is not None and found.value.get(key) == equals:
                        self._drop(found)
                return None
            case Require(kind, name, version):
                self._expect(kind, name, version)
                return None

    def _current(self, kind: str, name: str) -> Record | None:
        if (kind, name) in self._changed:
            return self._changed[kind, name]
        return self._lookup(kind, name)

    def _expect(self, kind: str, name: str, version: int | None) -> Record:
        current = self._current(kind, name)
        if current is None:
            raise RecordMissing(kind, name)
        if version is not None and version != current.version:
            raise RecordChanged(kind, name)
        return current

    def _put(self, event: EventType, kind: str, name: str, value: Value) -> Record:
        self.version += 1
        record = Record(kind, name, self.version, detached(value))
        self._changed[kind, name] = record
        self.events.append(Event(event, record))
        return record

    def _drop(self, current: Record) -> Record:
        self.version += 1
        deleted = Record(current.kind, current.name, self.version, current.value)
        self._changed[current.kind, current.name] = None
        self.events.append(Event("DELETED", deleted))
        return deleted


class IStore:
    """A store of records: the interface, with snapshot, recent events and watches; subclasses write.

    :param version: of the last change in *records*.
    :ivar quiet_period: shortest time between two writes of a fact that changes often and may be lost in a
        crash, such as the time when an agent was last seen, s.
    :ivar write_times: of transactions, with their wait for earlier ones.
    :ivar observe: called when a transaction is submitted; returns the function that gets its events.
    """

    _log = Logger()

    quiet_period = 0.0

    def __init__(self, version: int = 0, records: Iterable[Record] = ()) -> None:
        self._version = version
        self._records: dict[str, dict[str, Record]] = {kind: {} for kind in KINDS}
        for record in records:
            self._records[record.kind][record.name] = record
        self._recent: dict[str, deque[Event]] = {kind: deque() for kind in KINDS}
        self._floors = dict.fromkeys(KINDS, version)
        self._watches: dict[str, list[Watch]] = {kind: [] for kind in KINDS}
        self._undelivered: deque[Event] = deque()
        self._delivering = False
        self.write_times = Histogram(DELAY_BOUNDS)
        self.observe: Callable[[], Committed] = lambda: ignore

    @property
    def version(self) -> int:
        """Version of the last change in the snapshot."""
        return self._version

    def snapshot(self, kind: str) -> Mapping[str, Record]:
        """Return the records of a kind by name: a read-only view, which changes between reactor turns."""
        return MappingProxyType(self._records[kind])

    def get(self, kind: str, name: str) -> Record | None:
        """Return one record of the snapshot."""
        return self._records[kind].get(name)

    def changes(self, kind: str, since: int) -> list[Event]:
        """Return the events after version *since*, oldest first.

        :raise Expired: *since* is too old, or newer than the last change.
        """
        if not self._floors[kind] <= since <= self._version:
            raise Expired(f"version {since} of {kind} is too old or unknown: list again")
        return [event for event in self._recent[kind] if event.record.version > since]

    def watch(self, kind: str, callback: Callable[[Event], None]) -> Watch:
        """Call *callback* with every event from now on, in the order of their versions."""
        watch = Watch(callback, self._watches[kind].remove)
        self._watches[kind].append(watch)
        return watch

    def create(self, kind: str, name: str, value: Value) -> Deferred[Record]:
        """Run one `Create`."""
        return self.transact([Create(kind, name, value)]).addCallback(_only)

    def update(self, kind: str, name: str, value: Value, version: int | None = None) -> Deferred[Record]:
        """Run one `Update`; without a change it emits no event and keeps the version."""
        return self.transact([Update(kind, name, value, version)]).addCallback(_only)

    def delete(self, kind: str, name: str, version: int | None = None) -> Deferred[Record]:
        """Run one `Delete`; return the removed record."""
        return self.transact([Delete(kind, name, version)]).addCallback(_only)

    def transact(self, operations: Sequence[Operation]) -> Deferred[list[Record | None]]:
        """Run all *operations*, in order, or none.

        Fires when the commit is durable and in the snapshot, with one result per operation: the record
        written or removed, or None.  Fails with the operations' errors and with `StoreFailed`.
        """
        return self._begin(operations, self.observe())

    def _begin(self, operations: Sequence[Operation], committed: Committed) -> Deferred[list[Record | None]]:
        """Do it, and call *committed* with the events."""
        raise NotImplementedError

    def stop(self) -> Deferred[None]:
        """Finish the writes in progress; reject new ones."""
        raise NotImplementedError

    def _apply(self, events: Sequence[Event], committed: Committed) -> None:
        """Apply all committed events to the snapshot, then notify watches.

        :param committed: of the transaction.
        """
        committed(events)
        for event in events:
            record = event.record
            if event.type == "DELETED":
                self._records[record.kind].pop(record.name, None)
            else:
                self._records[record.kind][record.name] = record
            recent = self._recent[record.kind]
            recent.append(event)
            if len(recent) > EVENT_LIMIT:
                self._floors[record.kind] = recent.popleft().record.version
            self._version = max(self._version, record.version)
        self._undelivered.extend(events)
        self._deliver()

    def _forget_past(self) -> None:
        """Drop all recent events, so that `changes` since before now raises `Expired`."""
        for kind in KINDS:
            self._recent[kind].clear()
            self._floors[kind] = self._version

    def _deliver(self) -> None:
        """Notify watches in order; writes of their callbacks are delivered afterwards."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                event = self._undelivered.popleft()
                for watch in list(self._watches[event.record.kind]):
                    if watch.active:
                        self._notify(watch, event)
        finally:
            self._delivering = False

    def _notify(self, watch: Watch, event: Event) -> None:
        with self._log.failuresHandled(
            "watch of {kind} failed on {name}", kind=event.record.kind, name=event.record.name
        ):
            watch.callback(event)


def ignore(_: Sequence[Event]) -> None:
    """Observe nothing."""


def _only(answers: list[Record | None]) -> Record:
    (record,) = answers
    assert record is not None
    return record


class MemoryStore(IStore):
    """A store without persistence, for tests."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped = False

    def _begin(self, operations: Sequence[Operation], committed: Committed) -> Deferred[list[Record | None]]:
        if self._stopped:
            return fail(StoreStopped())
        plan = Plan(self.version, self.get, lambda kind: self.snapshot(kind).values())
        try:
            answers = plan.run(operations)
        except TowerError as e:
            return fail(e)
        self._apply(plan.events, committed)
        return succeed(answers)

    def stop(self) -> Deferred[None]:
        """See `IStore.stop`."""
        self._stopped = True
        return succeed(None)
