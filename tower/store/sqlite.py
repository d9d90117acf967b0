"""The store on local disk: one SQLite file, and one thread that writes it.

After the start only that thread accesses the file; reads use the snapshot in memory.  The file is in WAL
mode with ``synchronous=FULL``, so answered writes survive a loss of power.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic

from attrs import evolve
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads

from tower.reactor.worker_thread import WorkerThread
from tower.store.kinds import KINDS
from tower.store.records import Create, Event, Operation, Record, StoreFailed, StoreStopped, Update, detached
from tower.store.sqlite_file import Outcome, SQLiteFile
from tower.store.store import Committed, IStore, ignore

#: Largest file, B.
SIZE_LIMIT = 1 << 30

#: Most transactions that wait for the disk; more are rejected.
QUEUE_LIMIT = 1000


class SQLiteStore(IStore):
    """Records in a SQLite file.

    The constructor checks and reads the file, or creates it.  It leaves no thread and no open file, so that
    the process may still daemonize.  The first write starts the thread, `stop` ends it.

    :param path: of the file; SQLite creates two more with this prefix.
    :param size_limit: largest file, B.
    :raise ConfigurationError: the file cannot be used; the text names the cure.
    """

    def __init__(
        self, reactor: IReactorFromThreads, path: str | os.PathLike[str], size_limit: int = SIZE_LIMIT
    ) -> None:
        self._file = SQLiteFile(os.fspath(path), size_limit)
        super().__init__(*self._file.load())
        self._thread = WorkerThread(reactor, "tower-store")
        self._waiting = 0
        self._in_doubt: Committed = ignore
        self._stopped: Deferred[None] | None = None

    def _begin(self, operations: Sequence[Operation], committed: Committed) -> Deferred[list[Record | None]]:
        """See `IStore.transact`.  Cancelling the answer does not undo the write."""
        if self._stopped is not None:
            return fail(StoreStopped())
        if self._waiting >= QUEUE_LIMIT:
            return fail(StoreFailed(f"{QUEUE_LIMIT} writes already wait for the disk: retry later"))
        # The thread reads them later, when the caller may have modified the originals.
        copies = [
            evolve(o, value=detached(o.value)) if isinstance(o, Create | Update) else o for o in operations
        ]
        answer: Deferred[list[Record | None]] = Deferred()
        Deferred.fromCoroutine(self._transact(copies, committed)).addCallbacks(
            answer.callback, answer.errback
        )
        return answer

    def stop(self) -> Deferred[None]:
        """See `IStore.stop`."""
        if self._stopped is None:
            self._stopped = Deferred.fromCoroutine(self._stop())
        answer: Deferred[None] = Deferred()
        self._stopped.chainDeferred(answer)
        return answer

    async def _transact(self, operations: list[Operation], committed: Committed) -> list[Record | None]:
        self._waiting += 1
        began = monotonic()
        try:
            outcome: Outcome = await self._thread.defer(self._file.write, operations)
        finally:
            self._waiting -= 1
            self.write_times.observe(monotonic() - began)
        if outcome.found is not None:
            self._apply(list(self._differences(*outcome.found)), self._in_doubt)
            self._forget_past()
        if outcome.is_in_doubt:
            self._in_doubt = committed
        self._apply(outcome.events, committed)
        if outcome.error is not None:
            raise outcome.error
        return outcome.answers

    async def _stop(self) -> None:
        """Close the file after the queued writes, and end the thread."""
        if self._thread.started:
            await self._thread.defer(self._file.close)
            self._thread.stop()

    def _differences(self, version: int, records: Sequence[Record]) -> Iterator[Event]:
        """Return the events that lead from the snapshot to the file's records.

        They differ if a commit was reported as failed but succeeded.
        """
        found: Mapping[str, dict[str, Record]] = {kind: {} for kind in KINDS}
        for record in records:
            found[record.kind][record.name] = record
        for kind in KINDS:
            for name, gone in self.snapshot(kind).items():
                if name not in found[kind]:
                    yield Event("DELETED", evolve(gone, version=version))
        for record in sorted(records, key=lambda record: record.version):
            known = self.get(record.kind, record.name)
            if known is None or known.version != record.version:
                yield Event("MODIFIED" if known else "ADDED", record)
