"""Tests of transactions that `tower.store.sqlite` makes durable together."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tests.store.sqlite_case import SQLiteCase, reactor
from tower.store import sqlite_file
from tower.store.records import Create, Operation, Record, RecordExists, StoreFailed
from tower.store.sqlite import GROUP
from tower.store.sqlite_file import Outcome, SQLiteFile


class GroupTests(SQLiteCase):
    """Transactions that gather while an earlier one is written."""

    def setUp(self) -> None:
        """Make a store, and note the size of each group."""
        self.groups: list[int] = []
        write_all = SQLiteFile.write_all

        def noted(file: SQLiteFile, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
            self.groups.append(len(transactions))
            return write_all(file, transactions)

        self.patch(SQLiteFile, "write_all", noted)
        super().setUp()

    def creates(self, count: int) -> list[Deferred[Record]]:
        """Submit as many transactions at once."""
        return [self.store.create("clusters", f"c{number}", {}) for number in range(count)]

    async def test_together(self) -> None:
        """They are written in groups of limited size, with a version and an event each, in order."""
        seen: list[int] = []
        self.store.watch("clusters", lambda event: seen.append(event.record.version))
        records = await gatherResults(self.creates(GROUP + 3))
        self.assertEqual(self.groups, [1, GROUP, 2])
        self.assertEqual([record.version for record in records], list(range(1, GROUP + 4)))
        self.assertEqual(seen, list(range(1, GROUP + 4)))
        await self.store.stop()
        self.assertEqual(dict(self.opened().snapshot("clusters")), dict(self.store.snapshot("clusters")))

    async def test_conflict(self) -> None:
        """One that conflicts with an earlier one of its group fails; the others do not."""
        first, one, two, other = (self.store.create("clusters", name, {}) for name in ("a", "b", "b", "c"))
        (failure,) = await gatherResults([two.addErrback(lambda failure: failure.value)])
        self.assertIsInstance(failure, RecordExists)
        self.assertEqual([record.version for record in await gatherResults([first, one, other])], [1, 2, 3])
        self.assertEqual(self.groups, [1, 3])

    async def test_too_large(self) -> None:
        """One that does not fit into the file fails; the others are written one by one."""
        await self.store.stop()
        self.store, self.groups[:] = self.opened(size_limit=64 * 1024), []
        names, sizes = ("a", "b", "c", "d"), (1, 1, 100_000, 1)
        writes = [
            self.store.create("settings", name, {"text": "x" * size})
            for name, size in zip(names, sizes, strict=True)
        ]
        results = await DeferredList(writes, consumeErrors=True)
        self.assertEqual([success for success, _ in results], [True, True, False, True])
        self.assertEqual(sorted(self.store.snapshot("settings")), ["a", "b", "d"])
        self.assertEqual(self.groups, [1, 3, 1, 1, 1])

    async def test_stop(self) -> None:
        """A stop waits for all of them; later ones are rejected."""
        writes = gatherResults(self.creates(5))
        stopped = self.store.stop()
        self.assertIsInstance(await self.store.create("clusters", "late", {}).addErrback(_value), StoreFailed)
        await stopped
        self.assertEqual(len(self.successResultOf(writes)), 5)

    async def test_reactor_runs(self) -> None:
        """The reactor runs between the answers of a group, so that many of them do not delay other work."""
        answered: list[int] = []
        writes = [
            write.addCallback(lambda record: answered.append(record.version)) for write in self.creates(4)
        ]
        between: list[int] = []
        while len(answered) < len(writes):
            await deferLater(cast(IReactorTime, reactor), 0)
            between.append(len(answered))
        self.assertEqual(sorted(set(between) | {0}), [0, 1, 2, 3, 4])

    async def test_bug(self) -> None:
        """An unexpected error fails the transactions, is logged, and does not affect later ones."""

        def broken(file: SQLiteFile, transactions: object) -> list[Outcome]:
            raise ZeroDivisionError("no outcome")

        patch = self.patch(SQLiteFile, "write_all", broken)
        self.assertIsInstance(await self.store.create("clusters", "a", {}).addErrback(_value), StoreFailed)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        patch.restore()
        self.assertEqual((await self.store.create("clusters", "a", {})).version, 1)

    async def test_observer_fails(self) -> None:
        """An error in the observer of one transaction fails its answer, and no other."""
        first = self.store.create("clusters", "a", {})

        def broken(_events: object) -> None:
            raise ValueError("no room")

        self.store.observe = lambda: broken
        second = self.store.create("clusters", "b", {})
        self.store.observe = lambda: lambda _events: None
        third = self.store.create("clusters", "c", {})
        self.assertIsInstance(await second.addErrback(_value), ValueError)
        self.assertEqual([record.name for record in await gatherResults([first, third])], ["a", "c"])

    async def test_doubtful_commit(self) -> None:
        """If the commit of a group fails but succeeded, each observer gets the events of its own records."""
        observed: dict[str, list[str]] = {}

        def observe(name: str) -> None:
            self.store.observe = lambda: (
                lambda events: observed.setdefault(name, []).extend(event.record.name for event in events)
            )

        await self.store.create("clusters", "old", {})
        transaction = sqlite_file._transaction

        def failing(connection: sqlite3.Connection) -> Any:
            return _FailingCommit(transaction(connection))

        first = self.store.create("clusters", "first", {})
        writes = []
        for name in ("jane", "joe"):
            observe(name)
            writes.append(self.store.transact([Create("clusters", name, {}), Create("ports", name, {})]))
        self.patch(sqlite_file, "_transaction", failing)
        await first.addErrback(_value)
        for failure in await gatherResults([write.addErrback(_value) for write in writes]):
            self.assertIsInstance(failure, StoreFailed)
        self.patch(sqlite_file, "_transaction", transaction)
        observe("next")
        await self.store.create("clusters", "next", {})
        self.assertEqual(observed, {"jane": ["jane"] * 2, "joe": ["joe"] * 2, "next": ["next"]})


class _FailingCommit:
    """A transaction whose commit succeeds and is reported as failed."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __enter__(self) -> None:
        self._whole.__enter__()

    def __exit__(self, *error: object) -> None:
        self._whole.__exit__(*error)
        raise sqlite3.OperationalError("disk I/O error")


def _value(failure: Failure) -> BaseException | None:
    return failure.value
