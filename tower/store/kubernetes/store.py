"""The store in a host cluster: records are objects, reads are from memory.

Watches bring the changes of other programs; answers bring those of this store, to which only one process may
write.  Versions of records follow the host's resource versions, so they increase across restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.reflector_group import ReflectorGroup
from tower.store.kubernetes.committer import Committer, HostConflict, described
from tower.store.kubernetes.host_cache import HostCache, SeenChange
from tower.store.kubernetes.host_change import RecordChange, StoredObject, net_changes
from tower.store.kubernetes.host_followers import HostFollowers
from tower.store.kubernetes.host_writer import HostWriter
from tower.store.kubernetes.lost_namespace import LostNamespace
from tower.store.kubernetes.object_codec import ObjectCodec
from tower.store.kubernetes.orphans import Orphans
from tower.store.kubernetes.recovery import Recovery
from tower.store.kubernetes.transaction_log import Key, TransactionLog, Written
from tower.store.kubernetes.write_queue import Answers, WriteQueue
from tower.store.records import (
    Event,
    Operation,
    Record,
    RecordChanged,
    RecordExists,
    StoreFailed,
    Value,
)
from tower.store.store import Committed, IStore, Plan, ignore

#: Attempts of a transaction that conflicts with other programs' writes.
_ATTEMPTS = 10

#: See `IStore.quiet_period`, s: with agents that reconnect every 30 s, a cluster costs the host fewer than 5
#: writes in 10 minutes.
QUIET_PERIOD = 900.0

#: Delays until an interrupted transaction is tried again, s: the first, and the longest.
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0


class KubernetesStore(IStore):
    """Records in one namespace of a host cluster; clusters are cluster-scoped objects.

    It has no records before `start` has finished.

    :param codecs: of all kinds of records.
    :param group: of all reflectors of this host; None: there are no others.
    """

    quiet_period = QUIET_PERIOD

    def __init__(
        self,
        api: HostAPI,
        namespace: str,
        codecs: Iterable[ObjectCodec],
        reactor: IReactorTime,
        *,
        group: ReflectorGroup | None = None,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._codecs = {codec.kind: codec for codec in codecs}
        self._cache = HostCache(self.get)
        self._writer = HostWriter(api, namespace)
        self._transactions = TransactionLog(api, namespace, self._codecs, self._writer, reactor)
        self._recovery = Recovery(self._transactions, reactor)
        self._committer = Committer(self._transactions, self._writer, self._codecs, reactor)
        self._followers = HostFollowers(
            api, namespace, self._codecs.values(), self._cache, self._observe, reactor, group
        )
        self._orphans = Orphans(self, self._cache.owners, reactor)
        self._queue = WriteQueue(self._transact, self.write_times.observe, self._retry_later, reactor)
        self._interrupted: Committed = ignore
        self._flight: frozenset[Key] = frozenset()
        self._held: dict[tuple[str, str, str], Callable[[], None]] = {}
        self._lost = LostNamespace(
            api, namespace, reactor, self._cache, self._writer, self.get, self._write_again
        )
        self._retry: IDelayedCall | None = None
        self._retry_delay = _FIRST_RETRY
        self._stopped: Deferred[None] | None = None

    @classmethod
    async def load(
        cls,
        api: HostAPI,
        namespace: str,
        codecs: Iterable[ObjectCodec],
        reactor: IReactorTime,
    ) -> KubernetesStore:
        """Return a store that has started; see `start`."""
        store = cls(api, namespace, codecs, reactor)
        await store.start()
        return store

    @property
    def failures(self) -> list[str]:
        """Current errors of reading from the host cluster, with their cures."""
        own = (self._recovery.problem, self._lost.problem)
        return [*filter(None, own), *self._followers.failures]

    async def start(self) -> None:
        """Finish interrupted transactions, and load all records; waits for missing CRDs and rights.

        Only one process may do this at a time: the leader.

        :raise StoreFailed: a transaction is malformed; the text names the cure.
        """
        try:
            await self._recovery.run()
            await self._followers.start()
        except BaseException:
            self._followers.stop()
            raise
        self._version = max(self._version, self._followers.version)
        self._forget_past()
        self._orphans.sweep()

    def _begin(self, operations: Sequence[Operation], committed: Committed) -> Deferred[Answers]:
        """See `IStore.transact`.  Canceling the answer does not undo the write.

        After `StoreFailed` without an answer of the API server, the write may still happen.
        """
        return self._queue.add(operations, committed)

    def stop(self) -> Deferred[None]:
        """See `IStore.stop`; takes `STOP_TIME` at most."""
        if self._stopped is None:
            self._stopped = Deferred.fromCoroutine(self._stop())
        answer: Deferred[None] = Deferred()
        self._stopped.chainDeferred(answer)
        return answer

    async def _transact(self, operations: list[Operation], committed: Committed) -> Answers:
        await self._settle()
        for _ in range(_ATTEMPTS):
            plan = Plan(self.version, self.get, lambda kind: self.snapshot(kind).values())
            answers = plan.run(operations)
            changes = [self._change(*change) for change in net_changes(plan.events, self.get)]
            if not changes:
                return answers
            try:
                await self._write(changes, committed)
            except HostConflict as e:
                await self._refresh(e.change)
                continue
            return self._answers(plan, answers)
        raise RecordChanged(changes[0].kind, changes[0].name)

    def _change(self, kind: str, name: str, value: Value | None) -> RecordChange:
        seen = self._cache.get(self._codecs[kind], name)
        if seen is not None and seen.record is None:
            raise RecordExists(kind, name)  # Tower ignores its object
        return RecordChange(kind, name, value, "" if seen is None else seen.stored.uid)

    async def _write(self, changes: Sequence[RecordChange], committed: Committed) -> None:
        """Write *changes*, and publish them together; events of their objects wait meanwhile."""
        known: dict[Key, StoredObject | None] = {}
        for change in changes:
            seen = self._cache.get(self._codecs[change.kind], change.name)
            known[change.kind, change.name] = None if seen is None else seen.stored
        names = {(kind, self._codecs[kind].object_name(name)) for kind, name in known}
        ordered = sorted(changes, key=lambda change: not self._codecs[change.kind].is_shared)
        self._flight = frozenset(names)
        try:
            written = await self._committer.commit(ordered, known)
        except StoreFailed:
            if self._committer.is_interrupted:
                self._interrupted = committed
            else:
                self._land()
            raise
        except BaseException:
            self._land()
            raise
        else:
            self._publish(self._changes_of({key: written[key] for key in known}), committed)
            self._land()

    def _answers(self, plan: Plan, answers: Answers) -> Answers:
        """Return the *answers* of a committed plan, with the records as written."""
        last = {(event.record.kind, event.record.name): event for event in plan.events}

        def current(record: Record) -> Record:
            event = last.get((record.kind, record.name))
            if event is None or event.record is not record:
                return record  # unchanged, or changed again by a later operation
            found = self.get(record.kind, record.name)
            return found or evolve(record, version=self.version)

        return [None if record is None else current(record) for record in answers]

    async def _refresh(self, change: RecordChange) -> None:
        """Read the object of a conflict, because its event may arrive later."""
        codec = self._codecs[change.kind]
        try:
            obj = await self._writer.read(codec, change.name)
            if obj is None and not codec.is_shared and await self._lost.is_lost():
                raise StoreFailed(f"cannot write {change.kind} {change.name}: its namespace is deleted")
        except APIError as e:
            raise StoreFailed(f"cannot read {change.kind} {change.name} of the host cluster: {e}") from e
        if obj is not None:
            self._publish(self._cache.see(codec, obj))
        else:
            self._publish(self._cache.remove(codec, change.name))

    async def _settle(self) -> None:
        """Finish an interrupted transaction."""
        if self._committer.is_interrupted:
            self._publish(self._changes_of(await self._committer.settle()), self._interrupted)
            self._land()
            self._retry_delay = _FIRST_RETRY

        for kind, object_name in self._lost.to_restore:
            self._flight = frozenset(((kind, object_name),))
            try:
                await self._lost.write_again(self._codecs[kind], object_name)
            except APIError as e:
                raise StoreFailed(f"cannot write {kind} to the host cluster again: {described(e)}") from e
            finally:
                self._land()

    def _land(self) -> None:
        """Publish the events that waited for the end of a transaction."""
        self._flight = frozenset()
        held, self._held = self._held, {}
        for observe in held.values():
            observe()

    def _retry_later(self) -> None:
        if self._committer.is_interrupted and self._retry is None and not self._queue.is_stopped:
            self._retry = self._reactor.callLater(self._retry_delay, self._retry_now)
            self._retry_delay = min(2 * self._retry_delay, _LAST_RETRY)

    def _retry_now(self) -> None:
        self._retry = None
        self._write_again()

    def _write_again(self) -> None:
        self.transact([]).addErrback(lambda failure: failure.trap(StoreFailed))

    def _changes_of(self, written: Written) -> Iterator[SeenChange]:
        for (kind, name), obj in written.items():
            codec = self._codecs[kind]
            yield from self._cache.remove(codec, name) if obj is None else self._cache.see(codec, obj)

    def _observe(
        self, kind: str, name: str, uid: str, change_of: Callable[[], Iterator[SeenChange]], *, is_gone: bool
    ) -> None:
        codec = self._codecs[kind]
        if (kind, name) in self._flight:
            key = kind, name, uid
            self._held.pop(key, None)  # the newest state of an object is enough
            self._held[key] = lambda: self._observe(kind, name, uid, change_of, is_gone=is_gone)
        elif is_gone and not codec.is_shared and self._cache.record_name(codec, name) is not None:
            self._lost.hold((kind, name), lambda: self._publish(change_of()))
        else:
            self._publish(change_of())

    def _publish(self, changes: Iterator[SeenChange], committed: Committed = ignore) -> None:
        """Apply changes of records to the snapshot, and notify the watches.

        :param committed: of the transaction; by default, other programs have made the changes.
        """
        version, events, is_orphaned = self.version, [], False
        for change in changes:
            version = max(version + 1, change.version)
            events.append(Event(change.type, Record(change.kind, change.name, version, change.value)))
            is_orphaned = is_orphaned or bool(change.owner)
        self._apply(events, committed)
        if is_orphaned and not self._queue.is_stopped:
            self._orphans.sweep()

    async def _stop(self) -> None:
        self._orphans.stop()
        self._lost.stop()
        self._recovery.stop()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        await self._queue.stop()
        self._committer.stop()
        self._followers.stop()
