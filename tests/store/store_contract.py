"""Tests that all stores must pass, as a mixin for test cases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.trial.unittest import TestCase

from tower.errors import AlreadyExists, Conflict, Invalid, NotFound, TowerError
from tower.store import EVENT_LIMIT, IStore, MemoryStore
from tower.store.kinds import KINDS
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
    """Subclasses make the store; it is stopped after each test.

    :ivar ring: number of events that the store keeps.
    """

    store: IStore
    ring = EVENT_LIMIT

    def cluster(self, **marks: Any) -> Value:
        """Return a value for the kind clusters, unique for *marks*; some stores accept no other form."""
        return marks

    async def assert_fails(self, operation: Awaitable[object], kind: type[Exception]) -> Exception:
        """Await *operation* and return the failure, which must be of *kind*."""
        try:
            await operation
        except kind as e:
            return e
        raise self.failureException(f"did not raise {kind.__name__}")

    async def test_create(self) -> None:
        """A record is in the snapshot when the answer comes, and there only once."""
        value = self.cluster(port=1)
        before = self.store.version
        made = await self.store.create("clusters", "alpha", value)
        self.assertGreater(made.version, before)
        self.assertEqual(made, Record("clusters", "alpha", made.version, value))
        self.assertEqual(self.store.get("clusters", "alpha"), made)
        self.assertEqual(dict(self.store.snapshot("clusters")), {"alpha": made})
        self.assertEqual(self.store.version, made.version)
        error = await self.assert_fails(self.store.create("clusters", "alpha", self.cluster()), AlreadyExists)
        self.assertIsInstance(error, RecordExists)
        await self.store.create("settings", "alpha", {})

    async def test_observe(self) -> None:
        """The observer of a transaction gets its events once committed, before the snapshot has them."""
        heard: list[Any] = []

        def observe() -> Callable[[Sequence[Event]], None]:
            number = len(heard)
            heard.append([])

            def committed(events: Sequence[Event]) -> None:
                for event in events:
                    kind, name = event.record.kind, event.record.name
                    heard[number].append((event.type, name, self.store.get(kind, name) is not None))

            return committed

        self.store.observe = observe
        created = self.store.create("settings", "alpha", {"a": "1"})
        updated = self.store.update("settings", "alpha", {"a": "2"})
        await self.store.transact([DeleteWhere("settings", "a", "2")])
        await gatherResults([created, updated])
        await self.assert_fails(self.store.delete("settings", "alpha"), RecordMissing)
        self.assertEqual(
            heard,
            [
                [("ADDED", "alpha", False)],
                [("MODIFIED", "alpha", True)],
                [("DELETED", "alpha", True)],
                [],
            ],
        )

    async def test_update(self) -> None:
        """An update replaces the value, if the version is the one read."""
        old = await self.store.create("clusters", "alpha", self.cluster(a=1, b=2))
        new = await self.store.update("clusters", "alpha", self.cluster(a=3), version=old.version)
        self.assertGreater(new.version, old.version)
        self.assertEqual(new.value, self.cluster(a=3))
        error = await self.assert_fails(
            self.store.update("clusters", "alpha", self.cluster(a=4), version=old.version), Conflict
        )
        self.assertIsInstance(error, RecordChanged)
        await self.assert_fails(self.store.update("clusters", "beta", self.cluster()), RecordMissing)
        forced = await self.store.update("clusters", "alpha", self.cluster(a=5))
        self.assertGreater(forced.version, new.version)
        self.assertEqual(self.store.version, forced.version)

    async def test_values_of_all_kinds(self) -> None:
        """Records of all other kinds keep any value, under any name."""
        value = {"none": None, "n": 1, "x": 1.5, "list": [1, [], {}], "of": {"a": "", "b": False}}
        for kind in KINDS:
            if kind == "clusters":
                continue
            for name in ("a", "0d-41/SHA256:Ab+/=", "10.0.0.1:22", "[::1]:22", 'a"\\b', "Ä\n", "x" * 300):
                made = await self.store.create(kind, name, value)
                self.assertEqual(made.value, value)
                changed = await self.store.update(kind, name, {"none": None}, made.version)
                self.assertEqual((changed.name, changed.value), (name, {"none": None}))
            self.assertEqual(len(self.store.snapshot(kind)), 7)

    async def test_unchanged(self) -> None:
        """A write that changes nothing makes no event and no version."""
        old = await self.store.create("clusters", "alpha", self.cluster(a=1, b=[2]))
        same = await self.store.update("clusters", "alpha", self.cluster(b=[2], a=1), version=old.version)
        self.assertEqual((same.version, self.store.version), (old.version, old.version))
        self.assertEqual(self.store.changes("clusters", old.version), [])
        port = await self.store.create("ports", "1", {"a": 1, "b": [2, 3.0]})
        same = await self.store.update("ports", "1", {"b": [2, 3.0], "a": 1}, version=port.version)
        self.assertEqual((same.version, self.store.version), (port.version, port.version))

    async def test_delete(self) -> None:
        """A deletion returns the last value with the version of the deletion."""
        made = await self.store.create("clusters", "alpha", self.cluster(a=1))
        await self.assert_fails(self.store.delete("clusters", "alpha", version=made.version + 9), Conflict)
        gone = await self.store.delete("clusters", "alpha", version=made.version)
        self.assertEqual((gone.version, gone.value), (self.store.version, made.value))
        self.assertGreater(gone.version, made.version)
        self.assertIsNone(self.store.get("clusters", "alpha"))
        await self.assert_fails(self.store.delete("clusters", "alpha"), NotFound)

    async def test_transaction(self) -> None:
        """A transaction answers each operation, and sees what its earlier ones did."""
        port = await self.store.create("ports", "1", {"of": "x"})
        answers = await self.store.transact(
            [
                Require("ports", "1", port.version),
                Create("clusters", "alpha", self.cluster(n=1)),
                Update("clusters", "alpha", self.cluster(n=2)),
                Create("ports", "2", {"of": "x"}),
                DeleteWhere("ports", "of", "x"),
                Create("ports", "1", {"of": "y"}),
            ]
        )
        made, changed, second = answers[1:4]
        assert made is not None
        assert changed is not None
        assert second is not None
        self.assertEqual([made.name, changed.name, second.name], ["alpha", "alpha", "2"])
        self.assertLess(made.version, changed.version)
        self.assertEqual(self.store.get("clusters", "alpha"), changed)
        self.assertEqual(changed.value, self.cluster(n=2))
        self.assertEqual(answers[5], self.store.get("ports", "1"))
        self.assertEqual([answers[0], answers[4]], [None, None])
        self.assertEqual({n: r.value for n, r in self.store.snapshot("ports").items()}, {"1": {"of": "y"}})

    async def test_transaction_fails_whole(self) -> None:
        """When one operation fails, nothing of its transaction is there."""
        await self.store.create("clusters", "alpha", self.cluster())
        before = self.store.version
        for last in (
            Create("clusters", "alpha", self.cluster()),
            Update("clusters", "gone", self.cluster()),
            Delete("clusters", "alpha", before + 99),
            Require("clusters", "gone"),
            Require("clusters", "alpha", before + 99),
        ):
            operations = [Create("ports", "1", {}), last]
            await self.assert_fails(self.store.transact(operations), TowerError)
        self.assertEqual(self.store.version, before)
        self.assertEqual(dict(self.store.snapshot("ports")), {})

    async def test_racing_writers(self) -> None:
        """If several writers use the same version, one succeeds and the others fail."""
        made = await self.store.create("clusters", "alpha", self.cluster(by=-1))
        outcomes: list[object] = []
        writes = [
            self.store.update("clusters", "alpha", self.cluster(by=i), version=made.version).addBoth(
                outcomes.append
            )
            for i in range(5)
        ]
        await gatherResults(writes)
        self.assertEqual(sum(isinstance(outcome, Record) for outcome in outcomes), 1)

    async def test_events(self) -> None:
        """A watch receives the events of its kind in order; the snapshot has them already."""
        heard: list[tuple[str, str, bool]] = []
        versions: list[int] = []

        def hear(event: Event) -> None:
            there = self.store.get("clusters", event.record.name) is not None
            heard.append((event.type, event.record.name, there))
            versions.append(event.record.version)

        watch = self.store.watch("clusters", hear)
        a, port, b = await self.store.transact(
            [
                Create("clusters", "a", self.cluster()),
                Create("ports", "1", {}),
                Create("clusters", "b", self.cluster()),
            ]
        )
        assert a is not None
        assert port is not None
        assert b is not None
        self.assertLess(a.version, port.version)
        self.assertLess(port.version, b.version)
        updated = await self.store.update("clusters", "a", self.cluster(x=1))
        deleted = await self.store.delete("clusters", "b")
        watch.stop()
        watch.stop()
        await self.store.delete("clusters", "a")
        self.assertEqual(
            heard,
            [("ADDED", "a", True), ("ADDED", "b", True), ("MODIFIED", "a", True), ("DELETED", "b", False)],
        )
        self.assertEqual(versions, [a.version, b.version, updated.version, deleted.version])
        self.assertEqual(versions, sorted(set(versions)))

    async def test_watch_that_fails(self) -> None:
        """A watch that raises is logged, and the others receive the event."""
        heard: list[Event] = []

        def fail(event: Event) -> None:
            raise ZeroDivisionError

        self.store.watch("clusters", fail)
        self.store.watch("clusters", heard.append)
        await self.store.create("clusters", "a", self.cluster())
        self.assertEqual(len(heard), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_watch_that_writes(self) -> None:
        """A write by a watch is delivered after the event that caused it."""
        heard: list[str] = []

        def write(event: Event) -> None:
            if event.record.name == "a":
                self.store.create("clusters", "b", self.cluster())

        self.store.watch("clusters", write)
        self.store.watch("clusters", lambda event: heard.append(event.record.name))
        await self.store.create("clusters", "a", self.cluster())
        await self.store.create("clusters", "c", self.cluster())
        self.assertEqual(heard, ["a", "b", "c"])

    async def test_watch_stopped_by_another(self) -> None:
        """A watch that another one stops does not receive the current event."""
        heard: list[Event] = []
        self.store.watch("clusters", lambda event: second.stop())
        second = self.store.watch("clusters", heard.append)
        await self.store.create("clusters", "a", self.cluster())
        self.assertEqual(heard, [])

    async def test_changes(self) -> None:
        """The events after a version are listed by kind."""
        a, port, _ = await self.store.transact(
            [
                Create("clusters", "a", self.cluster()),
                Create("ports", "1", {}),
                Create("clusters", "b", self.cluster()),
            ]
        )
        assert a is not None
        assert port is not None
        await self.store.delete("clusters", "a")
        names = [(event.type, event.record.name) for event in self.store.changes("clusters", a.version)]
        self.assertEqual(names, [("ADDED", "b"), ("DELETED", "a")])
        self.assertEqual(self.store.changes("clusters", self.store.version), [])
        self.assertEqual(self.store.changes("ports", port.version), [])
        self.assertRaises(Expired, self.store.changes, "clusters", self.store.version + 1)
        self.assertRaises(Expired, self.store.changes, "clusters", -1)

    async def test_ring(self) -> None:
        """Older events than the ring holds are expired; another kind's events do not push them out."""
        start = self.store.version
        await self.store.create("ports", "1", {})
        made = await self.store.transact(
            [Create("clusters", f"c{i}", self.cluster()) for i in range(self.ring)]
        )
        first = made[0]
        assert first is not None
        self.assertEqual(len(self.store.changes("clusters", start)), self.ring)
        await self.store.create("clusters", "more", self.cluster())
        self.assertRaises(Expired, self.store.changes, "clusters", first.version - 1)
        self.assertEqual(len(self.store.changes("clusters", first.version)), self.ring)
        self.assertEqual(len(self.store.changes("ports", start)), 1)

    async def test_values_are_copies(self) -> None:
        """Later modifications of the caller's value have no effect."""
        value = {"list": [1]}
        write = self.store.create("settings", "a", value)
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
        return await self.store.create("settings", "odd", value)

    async def test_cancelled(self) -> None:
        """Cancelling an answer leaves the store consistent."""
        write = self.store.create("clusters", "a", self.cluster())
        write.addErrback(lambda failure: failure.trap(CancelledError))
        write.cancel()
        await self.store.create("clusters", "b", self.cluster())
        self.assertEqual(sorted(self.store.snapshot("clusters")), ["a", "b"])

    async def test_stopped(self) -> None:
        """A stop finishes the writes in progress and rejects new ones."""
        write = self.store.create("clusters", "a", self.cluster())
        await self.store.stop()
        self.assertEqual((await write).name, "a")
        await self.assert_fails(self.store.create("clusters", "b", self.cluster()), StoreFailed)
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
