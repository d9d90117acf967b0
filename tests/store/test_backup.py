"""Tests of `tower.store.backup`, `tower.store.archive` and `tower.store.restore`."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path
from typing import cast
from unittest.mock import patch

from attrs import evolve
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tower.drafts import Draft
from tower.errors import ConfigurationError
from tower.store import archive, backup
from tower.store.archive import Backup, SavedFile, read
from tower.store.backup import take, write
from tower.store.records import Create
from tower.store.restore import restore
from tower.store.sqlite import SQLiteStore
from tower.store.sqlite_file import SCHEMA
from tower.trust.statedir import RESTORING, StateDir

NOW = 1_790_000_000.0
KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nhush\n"


class Folders(SynchronousTestCase):
    """Each test has a state directory with records and keys."""

    def setUp(self) -> None:
        """Make it."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        state = StateDir(self.folder / "state")
        state.lock()
        self.addCleanup(state.close)
        self.state = state.path
        SQLiteStore(cast(IReactorFromThreads, global_reactor), self.state / "tower.db")
        state.write("ssh_host_ed25519_key", KEY)
        state.write("admin.kubeconfig", b"short-lived")
        (self.state / "node-files").mkdir(0o700)
        (self.state / "node-files" / "id.pub").write_bytes(b"public")
        (self.state / "node-files" / "id.pub").chmod(0o644)
        (self.state / "node-files" / ".id.0123456789ab").write_bytes(b"draft")
        (self.state / "node-files" / "link").symlink_to("id.pub")
        self.file = self.folder / "tower.backup"
        self.target = self.folder / "restored"

    def failed(self, action: object, *arguments: object, **named: object) -> str:
        """Return the error of *action*, which is one line."""
        error = self.assertRaises(ConfigurationError, action, *arguments, **named)
        self.assertNotIn("\n", str(error))
        return str(error)

    def leftovers(self) -> list[str]:
        """Return the names next to the state directory."""
        return sorted(name for name in os.listdir(self.folder) if name not in ("state", "restored"))


class BackupTests(Folders):
    def test_round_trip(self) -> None:
        """A restored directory has the same files and modes, without those that the proxy makes again."""
        write(take(self.state, NOW), self.file)
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        restore(read(self.file), self.target)
        found = {
            str(path.relative_to(self.target)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in self.target.rglob("*")
            if path.is_file()
        }
        self.assertEqual(
            set(found), {"lock", "tower.db", "ssh_host_ed25519_key", os.path.join("node-files", "id.pub")}
        )
        self.assertEqual(found["ssh_host_ed25519_key"], (KEY, 0o600))
        self.assertEqual(found["node-files/id.pub"], (b"public", 0o644))
        self.assertEqual(found["tower.db"][1], 0o600)
        for folder in (self.target, self.target / "node-files"):
            self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)

    def test_without_secrets(self) -> None:
        """Without secrets, only the records are in it."""
        write(take(self.state, NOW, with_secrets=False), self.file)
        made = read(self.file)
        self.assertEqual((list(made.files), made.has_secrets), (["tower.db"], False))
        with tarfile.open(self.file) as opened:
            self.assertEqual(opened.getnames(), ["tower-backup.json", "tower.db"])

    def test_existing(self) -> None:
        """An existing file is replaced only on request."""
        self.file.write_bytes(b"precious")
        made = take(self.state, NOW)
        self.assertIn("--force", self.failed(write, made, self.file))
        self.assertEqual(self.file.read_bytes(), b"precious")
        write(made, self.file, replace=True)
        self.assertEqual(read(self.file), made)
        self.assertEqual(self.leftovers(), ["tower.backup"])

    def test_full_disk(self) -> None:
        """A full disk leaves no part of a file, and keeps an existing one."""

        def full(draft: Draft, data: bytes) -> None:
            draft.path.write_bytes(data[:100])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.file.write_bytes(b"precious")
        with patch.object(Draft, "write", full):
            error = self.failed(write, take(self.state, NOW), self.file, replace=True)
        self.assertIn("No space left", error)
        self.assertEqual((self.leftovers(), self.file.read_bytes()), (["tower.backup"], b"precious"))

    def test_verified(self) -> None:
        """A file that differs when it is read again is not kept."""

        def flip(draft: Draft, data: bytes) -> None:
            draft.path.write_bytes(data[:-40] + bytes(40))

        with patch.object(Draft, "write", flip):
            self.assertIn("not a complete backup", self.failed(write, take(self.state, NOW), self.file))
        self.assertEqual(self.leftovers(), [])

    def test_changing_keys(self) -> None:
        """Keys that change while the records are copied are read again."""
        copies = []
        real = backup._database

        def rotate(path: Path) -> SavedFile:
            copies.append(path)
            if len(copies) == 1:
                (self.state / "ssh_host_ed25519_key").write_bytes(b"next")
            return real(path)

        with patch.object(backup, "_database", rotate):
            made = take(self.state, NOW)
        self.assertEqual((len(copies), made.files["ssh_host_ed25519_key"].data), (2, b"next"))

    def test_not_a_state_directory(self) -> None:
        """Other directories, and half-restored ones, are rejected."""
        self.assertIn("--state-dir", self.failed(take, self.folder, NOW))
        (self.state / RESTORING).touch()
        self.assertIn("interrupted", self.failed(take, self.state, NOW))

    def test_damaged_records(self) -> None:
        """Damaged records are not backed up silently."""
        path = self.state / "tower.db"
        path.write_bytes(path.read_bytes()[:4096] + b"x" * 8192)
        self.assertIn("tower.db", self.failed(take, self.state, NOW))


class ReadTests(Folders):
    def setUp(self) -> None:
        """Make a backup."""
        super().setUp()
        self.made = take(self.state, NOW)

    def test_damaged(self) -> None:
        """A backup that is cut or changed is rejected as a whole."""
        whole = self.made.encode()
        for end in range(0, len(whole) * 9 // 10, max(1, len(whole) // 40)):
            self.file.write_bytes(whole[:end])
            self.assertIn(str(self.file), self.failed(read, self.file))
            flipped = bytes([whole[end] ^ 0x55])
            self.file.write_bytes(whole[:end] + flipped + whole[end + 1 :])
            try:
                found = read(self.file)
            except ConfigurationError:
                continue
            self.assertEqual(found, self.made)  # a byte of the archive without meaning, such as its time
        self.file.write_bytes(b"not a backup")
        self.assertIn("not a complete backup", self.failed(read, self.file))
        self.assertIn("No such file", self.failed(read, self.folder / "nothing"))

    def test_other_content(self) -> None:
        """Files that do not match the manifest, or would be outside the directory, are rejected."""
        for name in ("../evil", "/evil", "a/../../evil", "a//b", "."):
            files = {**self.made.files, name: SavedFile(b"x", 0o600)}
            self.file.write_bytes(evolve(self.made, files=files).encode())
            self.assertIn("manifest is damaged", self.failed(read, self.file), name)
        for mode in (0o4755, -1):
            files = {**self.made.files, "a": SavedFile(b"x", mode)}
            manifest = evolve(self.made, files=files).manifest()
            self.assertEqual(manifest["files"]["a"]["mode"], mode)
            with patch.object(Backup, "manifest", return_value=manifest):
                self.file.write_bytes(self.made.encode())
            self.assertIn("manifest is damaged", self.failed(read, self.file))
        manifest = self.made.manifest()
        manifest["files"]["ssh_host_ed25519_key"]["sha256"] = "0" * 64
        with patch.object(Backup, "manifest", return_value=manifest):
            self.file.write_bytes(self.made.encode())
        self.assertIn("ssh_host_ed25519_key is damaged", self.failed(read, self.file))

    def test_newer(self) -> None:
        """A backup of a newer format, or with records of a newer schema, names the version."""
        with patch.object(archive, "FORMAT", 2):
            self.file.write_bytes(self.made.encode())
        self.assertIn("newer Tower", self.failed(read, self.file))
        with closing(sqlite3.connect(self.state / "tower.db")) as connection:
            connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
        self.assertIn("newer Tower", self.failed(take, self.state, NOW))


class RestoreTests(Folders):
    def setUp(self) -> None:
        """Make a backup."""
        super().setUp()
        self.made = take(self.state, NOW)

    def test_not_empty(self) -> None:
        """A directory with files, or of a running proxy, is left alone."""
        self.assertIn("in use by another Tower process", self.failed(restore, self.made, self.state))
        state = StateDir(self.target)
        state.write("host-keys.json", b"{}")
        self.assertIn("not empty", self.failed(restore, self.made, self.target))
        self.assertEqual(sorted(os.listdir(self.target)), ["host-keys.json", "lock"])

    def test_full_disk(self) -> None:
        """After an error the directory is empty again, and a second attempt succeeds."""
        files = {**self.made.files, "node-files": SavedFile(b"a file where others need a directory", 0o600)}
        broken = evolve(self.made, files=dict(sorted(files.items())))
        self.assertIn(str(self.target), self.failed(restore, broken, self.target))
        self.assertEqual(os.listdir(self.target), ["lock"])
        restore(self.made, self.target)
        self.assertIn("tower.db", os.listdir(self.target))

    def test_interrupted(self) -> None:
        """A proxy does not start in a directory whose restore was interrupted."""
        restore(self.made, self.target)
        state = StateDir(self.target)
        state.require_complete()
        state.write(RESTORING, b"")
        self.assertIn("tower restore", self.failed(state.require_complete))


class HotTests(TestCase):
    """A backup of a store that is written meanwhile."""

    def test_hot(self) -> Deferred[None]:
        """Backups contain all transactions that were answered before, each as a whole."""
        return Deferred.fromCoroutine(self.take_while_writing())

    async def take_while_writing(self) -> None:
        """Alternate writes and backups."""
        path = Path(self.mktemp()).absolute()
        path.mkdir()
        store = SQLiteStore(cast(IReactorFromThreads, global_reactor), path / "tower.db")
        for number in range(5):
            pair = [Create("settings", f"{number}-{half}", {"n": number}) for half in "ab"]
            await store.transact(pair)
            made = take(path, NOW)
            with closing(sqlite3.connect(":memory:")) as copy:
                copy.deserialize(made.files["tower.db"].data)
                (count,) = copy.execute("SELECT count(*) FROM records").fetchone()
            self.assertEqual(count, 2 * (number + 1))
        await store.stop()
