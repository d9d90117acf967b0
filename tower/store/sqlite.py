"""The store on local disk: one SQLite file, and one thread that writes it.

After the start only that thread accesses the file; reads use the snapshot in memory.  The file is in WAL
mode with ``synchronous=FULL``, so answered writes survive a loss of power.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic

from attrs import evolve, field, frozen
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from tower.reactor.worker_thread import WorkerThread
from tower.store.kinds import KINDS
from tower.store.records import (
    Create,
    DeleteWhere,
    Event,
    Operation,
    Record,
    StoreFailed,
    StoreStopped,
    Update,
    detached,
)
from tower.store.sqlite_file import Outcome, SQLiteFile
from tower.store.store import Committed, IStore

#: Largest file, B.
SIZE_LIMIT = 1 << 30

#: Most transactions that wait for the disk; more are rejected.
QUEUE_LIMIT = 1000

#: Most transactions that are made durable at once.
GROUP = 100


@frozen(eq=False)
class _Submitted:
    """A transaction; *answer* fires when it is durable, or has failed."""

    operations: list[Operation]
    committed: Committed
    answer: Deferred[list[Record | None]] = field(factory=Deferred)
    began: float = field(factory=monotonic)

    def names(self, record: Record) -> bool:
        """Return whether an operation names *record*."""
        names = ((o.kind, o.name) for o in self.operations if not isinstance(o, DeleteWhere))
        return (record.kind, record.name) in names


class SQLiteStore(IStore):
    """Records in a SQLite file.

    The constructor checks and reads the file, or creates it.  It leaves no thread and no open file, so that
    the process may still daemonize.  The first write starts the thread, `stop` ends it.

    While a write waits for the disk, further transactions gather, and are made durable together.  The reactor
    runs between their answers.

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
        self._reactor = reactor
        self._waiting: list[_Submitted] = []
        self._writing: list[_Submitted] = []
        self._written: deque[tuple[_Submitted, Outcome]] = deque()
        self._in_doubt: list[_Submitted] = []
        self._idle: Deferred[None] | None = None
        self._stopped: Deferred[None] | None = None

    def _begin(self, operations: Sequence[Operation], committed: Committed) -> Deferred[list[Record | None]]:
        """See `IStore.transact`.  Cancelling the answer does not undo the write."""
        if self._stopped is not None:
            return fail(StoreStopped())
        if len(self._waiting) + len(self._writing) + len(self._written) >= QUEUE_LIMIT:
            return fail(StoreFailed(f"{QUEUE_LIMIT} writes already wait for the disk: retry later"))
        # The thread reads them later, when the caller may have modified the originals.
        copies = [
            evolve(o, value=detached(o.value)) if isinstance(o, Create | Update) else o for o in operations
        ]
        submitted = _Submitted(copies, committed)
        self._waiting.append(submitted)
        if not self._writing:
            self._write()
        answer: Deferred[list[Record | None]] = Deferred()
        submitted.answer.addCallbacks(answer.callback, answer.errback)
        return answer

    def stop(self) -> Deferred[None]:
        """See `IStore.stop`."""
        if self._stopped is None:
            self._stopped = Deferred.fromCoroutine(self._stop())
        answer: Deferred[None] = Deferred()
        self._stopped.chainDeferred(answer)
        return answer

    def _write(self) -> None:
        """Write the waiting transactions in the thread."""
        self._writing, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
        operations = [each.operations for each in self._writing]
        writing = self._thread.defer(self._file.write_all, operations)
        writing.addErrback(self._not_written)
        writing.addCallback(self._settle)

    def _not_written(self, failure: Failure) -> list[Outcome]:
        """Return the outcomes after a bug."""
        self._log.failure("cannot write records", failure)
        error = StoreFailed(f"cannot write {self._file.path}: {failure.getErrorMessage()}")
        return [Outcome(error=error)] * len(self._writing)

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """Write what waits, and answer the transactions that were written."""
        is_first = not self._written
        self._written.extend(zip(self._writing, outcomes, strict=True))
        self._writing = []
        if self._waiting:
            self._write()
        if is_first:
            self._answer_next()

    def _answer_next(self) -> None:
        submitted, outcome = self._written[0]
        self.write_times.observe(monotonic() - submitted.began)
        try:
            self._apply_outcome(submitted, outcome)
        except Exception:  # noqa: BLE001 - of an observer; the other transactions are not affected
            submitted.answer.errback()
        self._written.popleft()
        if self._written:
            self._reactor.callFromThread(self._answer_next)
        elif self._idle is not None and not self._writing:
            self._idle.callback(None)

    def _apply_outcome(self, submitted: _Submitted, outcome: Outcome) -> None:
        """Apply a transaction to the snapshot, and answer."""
        if outcome.found is not None:
            self._apply(list(self._differences(*outcome.found)), self._observe_doubtful)
            self._forget_past()
        if outcome.is_in_doubt:
            self._in_doubt = [*self._in_doubt, submitted][-GROUP:]
        self._apply(outcome.events, submitted.committed)
        if outcome.error is None:
            self._in_doubt = []
            submitted.answer.callback(outcome.answers)
        else:
            submitted.answer.errback(outcome.error)

    async def _stop(self) -> None:
        """Close the file after the queued writes, and end the thread."""
        if self._writing or self._written:
            self._idle = Deferred()
            await self._idle
        if self._thread.started:
            await self._thread.defer(self._file.close)
            self._thread.stop()

    def _observe_doubtful(self, events: Sequence[Event]) -> None:
        """Report the events of commits that were reported as failed but succeeded, each to its observer.

        The last one also gets the events of records that no operation names.
        """
        doubtful, self._in_doubt = self._in_doubt, []
        for submitted in doubtful[:-1]:
            own = [event for event in events if submitted.names(event.record)]
            submitted.committed(own)
            events = [event for event in events if event not in own]
        for submitted in doubtful[-1:]:
            submitted.committed(events)

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
