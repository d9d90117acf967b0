"""Tests that all stores must pass, as a mixin for test cases."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.trial.unittest import TestCase

from tower.errors import AlreadyExists, Conflict, Invalid, NotFound, TowerError
from tower.store import EVENT_LIMIT, IStore, MemoryStore
from tower.store.records import (
    RECORD_LIMIT,
    Create,
    Delete,
    DeleteWhere,
    Event,
    Expired,
    Operation,
    Record,
    RecordChanged,
    RecordExists,
    RecordMissing,
    Require,
    StoreFailed,
    Update,
    Value,
)


class StoreContract(TestCase):
    """Subclasses make the store; it is stopped after each test."""

    store: IStore

    async def assert_fails(self, operation: Awaitable[object], kind: type[Exception]) -> Exception:
        """Await *operation* and return the failure, which must be of *kind*."""
        try:
            await operation
        except kind as e:
            return e
        raise self.failureException(f"did not raise {kind.__name__}")

    async def test_create(self) -> None:
        """A record is in the snapshot when the answer comes, and there only once."""
        made = await self.store.create("clusters", "alpha", {"port": 1})
        self.assertEqual(made, Record("clusters", "alpha", 1, {"port": 1}))
        self.assertEqual(self.store.get("clusters", "alpha"), made)
        self.assertEqual(dict(self.store.snapshot("clusters")), {"alpha": made})
        self.assertEqual(self.store.version, 1)
        error = await self.assert_fails(self.store.create("clusters", "alpha", {}), AlreadyExists)
        self.assertIsInstance(error, RecordExists)
        await self.store.create("settings", "alpha", {})

    async def test_update(self) -> None:
        """An update replaces the value, if the version is the one read."""
        await self.store.create("clusters", "alpha", {"a": 1, "b": 2})
        new = await self.store.update("clusters", "alpha", {"a": 3}, version=1)
        self.assertEqual((new.version, new.value), (2, {"a": 3}))
        error = await self.assert_fails(self.store.update("clusters", "alpha", {"a": 4}, version=1), Conflict)
        self.assertIsInstance(error, RecordChanged)
        await self.assert_fails(self.store.update("clusters", "beta", {}), RecordMissing)
        forced = await self.store.update("clusters", "alpha", {"a": 5})
        self.assertEqual((forced.version, self.store.version), (3, 3))

    async def test_unchanged(self) -> None:
        """A write that changes nothing makes no event and no version."""
        await self.store.create("clusters", "alpha", {"a": 1, "b": [2]})
        same = await self.store.update("clusters", "alpha", {"b": [2], "a": 1}, version=1)
        self.assertEqual((same.version, self.store.version), (1, 1))
        self.assertEqual(self.store.changes("clusters", 1), [])

    async def test_delete(self) -> None:
        """A deletion returns the last value with the version of the deletion."""
        await self.store.create("clusters", "alpha", {"a": 1})
        await self.assert_fails(self.store.delete("clusters", "alpha", version=9), Conflict)
        gone = await self.store.delete("clusters", "alpha", version=1)
        self.assertEqual((gone.version, gone.value), (2, {"a": 1}))
        self.assertIsNone(self.store.get("clusters", "alpha"))
        await self.assert_fails(self.store.delete("clusters", "alpha"), NotFound)

    async def test_transaction(self) -> None:
        """A transaction answers each operation, and sees what its earlier ones did."""
        await self.store.create("ports", "1", {"of": "x"})
        answers = await self.store.transact(
            [
                Require("ports", "1", 1),
                Create("clusters", "alpha", {"n": 1}),
                Update("clusters", "alpha", {"n": 2}),
                Create("ports", "2", {"of": "x"}),
                DeleteWhere("ports", "of", "x"),
                Create("ports", "1", {"of": "y"}),
            ]
        )
        self.assertEqual(
            [a and (a.name, a.version) for a in answers][1:4], [("alpha", 2), ("alpha", 3), ("2", 4)]
        )
        self.assertEqual([answers[0], answers[4]], [None, None])
        self.assertEqual({n: r.value for n, r in self.store.snapshot("ports").items()}, {"1": {"of": "y"}})

    async def test_transaction_fails_whole(self) -> None:
        """When one operation fails, nothing of its transaction is there."""
        await self.store.create("clusters", "alpha", {})
        before = self.store.version
        for last in (
            Create("clusters", "alpha", {}),
            Update("clusters", "gone", {}),
            Delete("clusters", "alpha", 99),
            Require("clusters", "gone"),
            Require("clusters", "alpha", 99),
        ):
            operations = [Create("ports", "1", {}), last]
            await self.assert_fails(self.store.transact(operations), TowerError)
        self.assertEqual(self.store.version, before)
        self.assertEqual(dict(self.store.snapshot("ports")), {})

    async def test_racing_writers(self) -> None:
        """If several writers use the same version, one succeeds and the others fail."""
        await self.store.create("clusters", "alpha", {"by": -1})
        outcomes: list[object] = []
        writes = [
            self.store.update("clusters", "alpha", {"by": i}, version=1).addBoth(outcomes.append)
            for i in range(5)
        ]
        await gatherResults(writes)
        self.assertEqual(sum(isinstance(outcome, Record) for outcome in outcomes), 1)

    async def test_events(self) -> None:
        """A watch receives the events of its kind in order; the snapshot has them already."""
        heard: list[tuple[str, str, int, bool]] = []

        def hear(event: Event) -> None:
            there = self.store.get("clusters", event.record.name) is not None
            heard.append((event.type, event.record.name, event.record.version, there))

        watch = self.store.watch("clusters", hear)
        await self.store.transact(
            [Create("clusters", "a", {}), Create("ports", "1", {}), Create("clusters", "b", {})]
        )
        await self.store.update("clusters", "a", {"x": 1})
        await self.store.delete("clusters", "b")
        watch.stop()
        watch.stop()
        await self.store.delete("clusters", "a")
        self.assertEqual(
            heard,
            [
                ("ADDED", "a", 1, True),
                ("ADDED", "b", 3, True),
                ("MODIFIED", "a", 4, True),
                ("DELETED", "b", 5, False),
            ],
        )

    async def test_watch_that_fails(self) -> None:
        """A watch that raises is logged, and the others receive the event."""
        heard: list[Event] = []

        def fail(event: Event) -> None:
            raise ZeroDivisionError

        self.store.watch("clusters", fail)
        self.store.watch("clusters", heard.append)
        await self.store.create("clusters", "a", {})
        self.assertEqual(len(heard), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_watch_that_writes(self) -> None:
        """A write by a watch is delivered after the event that caused it."""
        heard: list[str] = []

        def write(event: Event) -> None:
            if event.record.name == "a":
                self.store.create("clusters", "b", {})

        self.store.watch("clusters", write)
        self.store.watch("clusters", lambda event: heard.append(event.record.name))
        await self.store.create("clusters", "a", {})
        await self.store.create("clusters", "c", {})
        self.assertEqual(heard, ["a", "b", "c"])

    async def test_watch_stopped_by_another(self) -> None:
        """A watch that another one stops does not receive the current event."""
        heard: list[Event] = []
        self.store.watch("clusters", lambda event: second.stop())
        second = self.store.watch("clusters", heard.append)
        await self.store.create("clusters", "a", {})
        self.assertEqual(heard, [])

    async def test_changes(self) -> None:
        """The events after a version are listed by kind."""
        await self.store.transact(
            [Create("clusters", "a", {}), Create("ports", "1", {}), Create("clusters", "b", {})]
        )
        await self.store.delete("clusters", "a")
        names = [(event.type, event.record.name) for event in self.store.changes("clusters", 1)]
        self.assertEqual(names, [("ADDED", "b"), ("DELETED", "a")])
        self.assertEqual(self.store.changes("clusters", 4), [])
        self.assertEqual(self.store.changes("ports", 2), [])
        self.assertRaises(Expired, self.store.changes, "clusters", 5)
        self.assertRaises(Expired, self.store.changes, "clusters", -1)

    async def test_ring(self) -> None:
        """Older events than the ring holds are expired; another kind's events do not push them out."""
        await self.store.create("ports", "1", {})
        await self.store.transact([Create("clusters", f"c{i}", {}) for i in range(EVENT_LIMIT)])
        self.assertEqual(len(self.store.changes("clusters", 0)), EVENT_LIMIT)
        await self.store.create("clusters", "more", {})
        self.assertRaises(Expired, self.store.changes, "clusters", 1)
        self.assertEqual(len(self.store.changes("clusters", 2)), EVENT_LIMIT)
        self.assertEqual(len(self.store.changes("ports", 0)), 1)

    async def test_values_are_copies(self) -> None:
        """Later modifications of the caller's value have no effect."""
        value = {"list": [1]}
        write = self.store.create("clusters", "a", value)
        value["list"].append(2)
        self.assertEqual((await write).value, {"list": [1]})

    async def test_values_must_be_json(self) -> None:
        """Values that are not JSON, or too large, are rejected; any text is stored."""
        await self.assert_fails(self._create({"text": "x" * RECORD_LIMIT}), Invalid)
        await self.assert_fails(self._create({"set": {1}}), TypeError)
        await self.assert_fails(self._create({"nan": float("nan")}), ValueError)
        odd: Value = {"text": "\0\ud800é\N{OWL}"}
        self.assertEqual((await self._create(odd)).value, odd)

    async def _create(self, value: Value) -> Record:
        return await self.store.create("clusters", "odd", value)

    async def test_cancelled(self) -> None:
        """Cancelling an answer leaves the store consistent."""
        write = self.store.create("clusters", "a", {})
        write.addErrback(lambda failure: failure.trap(CancelledError))
        write.cancel()
        await self.store.create("clusters", "b", {})
        self.assertEqual(sorted(self.store.snapshot("clusters")), ["a", "b"])

    async def test_stopped(self) -> None:
        """A stop finishes the writes in progress and rejects new ones."""
        write = self.store.create("clusters", "a", {})
        await self.store.stop()
        self.assertEqual((await write).name, "a")
        await self.assert_fails(self.store.create("clusters", "b", {}), StoreFailed)
        await self.store.stop()

    async def test_view_is_read_only(self) -> None:
        """The snapshot is read-only."""
        with self.assertRaises(TypeError):
            self.store.snapshot("clusters")["a"] = Record("clusters", "a", 1, {})  # type: ignore[index]

    def test_no_values_in_reprs(self) -> None:
        """A record's value does not get into a log by its repr."""
        shown = [
            Record("k", "n", 1, {"a": "hush"}),
            Create("k", "n", {"a": "hush"}),
            Update("k", "n", {"a": "hush"}),
        ]
        self.assertNotIn("hush", repr(shown))


class HeldStore(MemoryStore):
    """A store whose writes happen when the test lets them, as those of a slow disk do."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Sequence[Operation], Deferred[list[Record | None]]]] = []
        self.holding = False

    def transact(self, operations: Sequence[Operation]) -> Deferred[list[Record | None]]:
        """Write now, or hold the write."""
        if not self.holding:
            return super().transact(operations)
        answer: Deferred[list[Record | None]] = Deferred()
        self.held.append((operations, answer))
        return answer

    def release(self) -> None:
        """Run the held writes and their consequences in order."""
        while self.held:
            operations, answer = self.held.pop(0)
            super().transact(operations).chainDeferred(answer)
