"""The contract of all stores, on the one on disk, and what only that one does."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from twisted.internet.defer import gatherResults
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.store import store_contract
from tests.store.sqlite_case import SQLiteCase, reactor
from tower.clusters import Clusters
from tower.clusters.v1_tokens import V1Tokens
from tower.errors import ConfigurationError
from tower.store.records import Create, Expired, RecordMissing, StoreFailed, Update
from tower.store.sqlite import QUEUE_LIMIT, SQLiteStore
from tower.store.sqlite_file import APPLICATION_ID, SCHEMA

#: Writes records for ever, and prints the name of each when its answer has come.
_WRITER = """
import sys
from twisted.internet import reactor
from tower.store.sqlite import SQLiteStore
from tower.store.records import Create
store = SQLiteStore(reactor, sys.argv[1])
async def write():
    number = 0
    while True:
        pair = [Create("clusters", str(number), {}), Create("ports", str(number), {"text": "x" * 3000})]
        await store.transact(pair)
        print(number, flush=True)
        number += 1
from twisted.internet.defer import Deferred
reactor.callWhenRunning(lambda: Deferred.fromCoroutine(write()))
reactor.run()
"""


#: Records of a cluster with a join token, as stored by the first release.
_BEFORE_V1 = f"""
CREATE TABLE records (kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE sequence (version INTEGER NOT NULL);
INSERT INTO sequence VALUES (3);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = 1;
INSERT INTO records VALUES ('clusters', 'alpha', 1, '{{"annotations":{{}},"conditions":[],
    "created":1790000000.0,"enabled":true,"kubernetes_port":6000,"labels":{{}},"uid":"b7e0"}}');
INSERT INTO records VALUES ('ports', '6000', 2, '{{"cluster":"alpha","cluster_uid":"b7e0"}}');
INSERT INTO records VALUES ('jointokens', 'd1', 3, '{{"cluster":"alpha","cluster_uid":"b7e0","enrolled":[],
    "expires":1790003600.0,"minted":1790000000.0,"uses":1}}');
"""


def _error(failure: Failure) -> BaseException | None:
    return failure.value


class SQLiteContractTests(store_contract.StoreContract):
    """The store on disk keeps the contract of all stores."""

    def setUp(self) -> None:
        """Make a store."""
        self.store = SQLiteStore(reactor, self.mktemp())
        self.addCleanup(self.store.stop)


class SQLiteStoreTests(SQLiteCase):
    """Tests of stores on disk."""

    async def test_reopened(self) -> None:
        """Records and versions survive a restart; events before it are expired."""
        await self.store.create("clusters", "a", {"n": [1, "é"]})
        await self.store.create("clusters", "b", {})
        await self.store.delete("clusters", "b")
        await self.store.stop()
        again = self.opened()
        self.assertEqual(dict(again.snapshot("clusters")), dict(self.store.snapshot("clusters")))
        self.assertEqual(again.version, 3)
        self.assertRaises(Expired, again.changes, "clusters", 2)
        self.assertEqual(again.changes("clusters", 3), [])
        self.assertEqual((await again.create("clusters", "b", {})).version, 4)

    async def test_older(self) -> None:
        """A file from before there were tokens for old agents opens, and takes them."""
        path = self.mktemp()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(_BEFORE_V1)
        connection.close()
        store = SQLiteStore(reactor, path)
        self.addCleanup(store.stop)
        clusters = Clusters(store, range(6000, 6010), Clock())
        self.addCleanup(clusters.stop)
        (alpha,) = clusters.list()
        self.assertEqual((alpha.name, alpha.kubernetes_port), ("alpha", 6000))
        tokens = V1Tokens(store, Clock())
        self.assertEqual(tokens.tokens("alpha"), [])
        token = await tokens.mint("alpha")
        self.assertEqual(tokens.check("alpha", token), tokens.tokens("alpha")[0].id)
        await clusters.remove("alpha")
        self.assertEqual(dict(store.snapshot("v1tokens")), {})

    async def test_private(self) -> None:
        """All of SQLite's files are the owner's alone, whatever the umask is."""
        self.addCleanup(os.umask, os.umask(0))
        self.path = Path(self.mktemp())
        store = self.opened()
        await store.create("clusters", "a", {})
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in self.path.parent.glob(self.path.name + "*")}
        self.assertEqual(len(modes), 3)
        self.assertEqual(set(modes.values()), {0o600})

    async def test_nothing_held_before_the_first_write(self) -> None:
        """A process may fork after opening: neither descriptor nor thread is left by it."""
        before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
        store = self.opened()
        after = set(os.listdir("/proc/self/fd")) if before else set()
        self.assertEqual(len(before), len(after))
        await store.stop()

    async def test_answer_after_commit(self) -> None:
        """When an answer comes, the file's copy as a crash would leave it has the record."""
        for number in range(5):
            await self.store.create("clusters", str(number), {})
            self.assertEqual(len(self.crashed().snapshot("clusters")), number + 1)

    def crashed(self, cut: Callable[[bytes], bytes] = bytes) -> SQLiteStore:
        """Open a copy of the files as they are this moment, the log of writes cut short."""
        copy = Path(self.mktemp())
        shutil.copy(self.path, copy)
        wal = Path(f"{self.path}-wal")
        Path(f"{copy}-wal").write_bytes(cut(wal.read_bytes()))
        store = SQLiteStore(reactor, copy)
        self.addCleanup(store.stop)
        return store

    async def test_torn_write(self) -> None:
        """Wherever a crash tears the log, each transaction is there whole or not at all, in order."""
        for number in range(6):
            big = {"text": "x" * 3000}
            await self.store.transact(
                [Create("clusters", str(number), {}), Create("ports", str(number), big)]
            )
        size = Path(f"{self.path}-wal").stat().st_size
        seen = set()
        for length in range(0, size, 1031):
            store = self.crashed(lambda data, end=length: data[:end])  # type: ignore[misc]
            clusters, ports = store.snapshot("clusters"), store.snapshot("ports")
            self.assertEqual(sorted(clusters), sorted(ports))
            self.assertEqual(sorted(clusters), [str(n) for n in range(len(clusters))])
            self.assertEqual(store.version, 2 * len(clusters))
            seen.add(len(clusters))
        self.assertGreater(len(seen), 3)

    async def test_full(self) -> None:
        """A full disk fails the write, which promised nothing; reads go on, and writes when there is room."""
        store = self.opened(size_limit=64 * 1024)
        await store.create("clusters", "a", {})
        failures = 0
        for number in range(40):
            try:
                await store.create("settings", str(number), {"text": "x" * 4000})
            except StoreFailed as e:
                failures += 1
                self.assertIn(str(self.path), str(e))
                self.assertIn("free space", str(e))
                self.assertIsNone(store.get("settings", str(number)))
        self.assertGreater(failures, 10)
        kept = dict(store.snapshot("settings"))
        self.assertTrue(kept)
        await store.delete("settings", "0")
        await store.create("settings", "0", {"text": "y" * 3000})
        await store.stop()
        self.assertEqual(set(self.opened().snapshot("settings")), set(kept))

    async def test_found_changed(self) -> None:
        """A commit that failed but came through is found by the next write; its observer gets the events."""
        store = self.opened(size_limit=64 * 1024)
        await store.transact([Create("clusters", name, {"n": 1}) for name in ("gone", "old", "same")])
        big = {"text": "x" * 100_000}
        observed: list[tuple[str, str]] = []
        store.observe = lambda: lambda events: observed.extend((e.type, e.record.name) for e in events)
        self.assertIsInstance(await store.create("settings", "big", big).addErrback(_error), StoreFailed)
        store.observe = lambda: self.assertFalse
        # Another store plays the part of the commit whose answer was lost.
        other = self.opened()
        await other.transact([Update("clusters", "old", {"n": 2}), Create("clusters", "new", {})])
        await other.delete("clusters", "gone")
        await other.stop()
        heard: list[tuple[str, str, int]] = []
        store.watch(
            "clusters", lambda event: heard.append((event.type, event.record.name, event.record.version))
        )
        late = store.update("clusters", "gone", {"n": 3})
        self.assertIsInstance(await late.addErrback(_error), RecordMissing)
        self.assertEqual(heard, [("DELETED", "gone", 6), ("MODIFIED", "old", 4), ("ADDED", "new", 5)])
        self.assertEqual(observed, [("DELETED", "gone"), ("MODIFIED", "old"), ("ADDED", "new")])
        self.assertEqual(sorted(store.snapshot("clusters")), ["new", "old", "same"])
        store.observe = lambda: lambda _: None
        self.assertRaises(Expired, store.changes, "clusters", 3)
        self.assertEqual((await store.create("clusters", "next", {})).version, 7)

    async def test_backlog(self) -> None:
        """More writes than the backlog holds are refused at once."""
        writes = [self.store.create("clusters", str(n), {}) for n in range(QUEUE_LIMIT)]
        refused = self.store.create("clusters", "more", {})
        self.assertIn("wait", str(self.failureResultOf(refused, StoreFailed).value))
        for write in writes[10:]:
            write.addErrback(lambda failure: None)
        await gatherResults(writes)

    async def test_killed(self) -> None:
        """After kill -9 in the middle, everything that was answered is there, and nothing by half."""
        await self.store.stop()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(self.path)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert writer.stdout is not None
        answered = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        answered += writer.stdout.readlines()
        writer.stdout.close()
        writer.wait()
        store = self.opened()
        expected = {line.decode().strip() for line in answered if line.endswith(b"\n")}
        self.assertLessEqual(expected, set(store.snapshot("clusters")))
        self.assertGreaterEqual(len(expected), 20)
        self.assertEqual(set(store.snapshot("ports")), set(store.snapshot("clusters")))


class BadFileTests(SynchronousTestCase):
    """Files that cannot be used."""

    def refused(self, path: str | Path, *words: str) -> None:
        """Expect one line with the file's name and *words*."""
        error = self.assertRaises(ConfigurationError, SQLiteStore, reactor, path)
        for word in (str(path), *words):
            self.assertIn(word, str(error))
        self.assertNotIn("\n", str(error))

    def made(self, *statements: str) -> str:
        """Create a file, modify it, and return its path."""
        path = str(self.mktemp())
        SQLiteStore(reactor, path)
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
        return path

    def test_newer(self) -> None:
        """A file from a newer Tower is named, and not touched."""
        path = self.made(f"PRAGMA user_version = {SCHEMA + 1}")
        before = Path(path).read_bytes()
        self.refused(path, "newer Tower")
        self.assertEqual(Path(path).read_bytes(), before)

    def test_foreign(self) -> None:
        """Another program's file is named, and not touched."""
        path = self.mktemp()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE t (x)")
        connection.close()
        self.refused(path, "another program")
        self.refused(self.made(f"PRAGMA application_id = {APPLICATION_ID + 1}"), "another program")

    def test_not_sqlite(self) -> None:
        """A file of something else is named, with the cure."""
        path = Path(self.mktemp())
        path.write_bytes(b"hello" * 1000)
        self.refused(path, "damaged", "backup")

    def test_damaged(self) -> None:
        """A file with damaged pages is named, with the cure."""
        path = Path(
            self.made(*[f"INSERT INTO records VALUES ('clusters', 'c{n}', 0, '{{}}')" for n in range(200)])
        )
        data = bytearray(path.read_bytes())
        data[4096:] = bytes(byte ^ 0xA5 for byte in data[4096:])
        path.write_bytes(data)
        self.refused(path, "damaged", "backup")

    def test_senseless(self) -> None:
        """Records that are not JSON, of unknown kinds, or newer than the last change are damage."""
        for row in (
            "('clusters', 'a', 0, 'nonsense')",
            "('clusters', 'a', 0, '[]')",
            "('unknown', 'a', 0, '{}')",
            "('clusters', 'a', 7, '{}')",
        ):
            self.refused(self.made(f"INSERT INTO records VALUES {row}"), "damaged")
        self.refused(self.made("DELETE FROM sequence"), "damaged")
        self.refused(self.made("DROP TABLE sequence"), "sequence")

    def test_no_directory(self) -> None:
        """A missing directory, or a directory at the file's path, is named in the error."""
        self.refused(Path(self.mktemp()) / "store.db", "No such file")
        path = Path(self.mktemp())
        path.mkdir()
        self.refused(path, "directory")
