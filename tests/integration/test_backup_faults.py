"""Backups and restores that go wrong: a full disk, a kill, damaged files, and writes at the same time."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shlex
import shutil
import signal
import sqlite3
import stat
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path
from unittest import SkipTest

from tests.integration.harness import TowerTestCase
from tests.integration.person import Person
from tests.integration.programs import PATIENCE, clean_environment, run, script, wait_for
from tower.store.archive import read

CREDENTIALS = "/apis/cluster.kubesphere.io/v1alpha1/clusters/alpha/kubeconfigs"
LARGE = 15 << 20  # B; a backup with it takes long enough to be killed
ATTEMPTS = 10  # to kill in time
TINY = 64 * 1024  # B, of a disk that is too small
RATE = 100  # writes per second
BACKUPS = 3


class Writer(threading.Thread):
    """Issues credentials, about `RATE` per second, until it is stopped.

    :ivar acknowledged: number of credentials that the proxy has confirmed.
    :ivar failure: why it ended early; empty if it did not.
    """

    def __init__(self, admin: Person) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.failure = ""
        self._admin = admin
        self._end = threading.Event()

    def run(self) -> None:
        """See `threading.Thread.run`."""
        connection = self._admin.connect()
        spec = {"user": "jane", "auth": "token"}
        body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig", "spec": spec}
        headers = {"Content-Type": "application/json"}
        try:
            began = time.monotonic()
            while not self._end.is_set():
                answer = self._admin.ask(connection, CREDENTIALS, "POST", json.dumps(body).encode(), headers)
                text = answer.read()
                assert answer.status == 201, text
                self.acknowledged += 1
                time.sleep(max(0.0, began + self.acknowledged / RATE - time.monotonic()))
        except (OSError, http.client.HTTPException, AssertionError) as e:
            self.failure = repr(e)
        finally:
            connection.close()

    def stop(self) -> None:
        """End it."""
        self._end.set()
        self.join(PATIENCE)


class BackupFaultTests(TowerTestCase):
    """A proxy with one cluster."""

    def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.tower.tower("cluster", "add", "alpha")
        self.target = self.folder / "backups"
        self.target.mkdir()
        self.file = self.target / "tower.backup"
        self.fresh = self.folder / "restored"

    def command(self, *arguments: str, state: Path | None = None) -> list[str]:
        """Return the words of a command."""
        return [script("tower"), "--state-dir", str(state or self.tower.state), *arguments]

    def refusal(self, *arguments: str, state: Path | None = None) -> str:
        """Run a command that fails with one line; return that line."""
        done = run(self.command(*arguments, state=state))
        return self.one_line(done.returncode, done.stdout + done.stderr)

    def restored(self, file: Path, state: Path) -> str:
        """Restore a backup, which must succeed; return the output."""
        done = run(self.command("restore", str(file), state=state))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def one_line(self, code: int, output: bytes) -> str:
        """Return the only line of a command that has failed."""
        (line,) = output.decode().splitlines()
        self.assertEqual(code, 1, line)
        self.assertTrue(line.startswith("tower: "), line)
        return line

    def add_large(self) -> Path:
        """Add a large file to the state directory; return its path there."""
        files = self.tower.state / "node-files"
        files.mkdir(0o700, exist_ok=True)
        (files / "large").write_bytes(os.urandom(LARGE))
        return Path("node-files", "large")

    def kill_when(self, seen: Path, pattern: str, *arguments: str, state: Path | None = None) -> bool:
        """Run a command, and kill it as soon as a file matches *pattern* in *seen*.

        :return: whether it was killed, and the file is still present.
        """
        process = subprocess.Popen(
            self.command(*arguments, state=state), env=clean_environment(), stdout=subprocess.DEVNULL
        )
        while process.poll() is None and not (seen.is_dir() and any(seen.glob(pattern))):
            time.sleep(0.0005)
        process.kill()
        return process.wait(PATIENCE) == -signal.SIGKILL and any(seen.glob(pattern))

    def on_tiny_disk(self, mount: Path, *arguments: str, state: Path | None = None) -> tuple[str, list[str]]:
        """Run a command while *mount* is a disk of `TINY` B; return its line and the files on this disk."""
        shell = (
            f"mount -t tmpfs -o size={TINY},mode=700 tmpfs {mount} && "
            f"{{ {shlex.join(self.command(*arguments, state=state))}; code=$?; ls -A {mount}; exit $code; }}"
        )
        own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        if run([*own, "mount", "-t", "tmpfs", "tmpfs", str(mount)]).returncode:
            raise SkipTest("this machine lets us mount nothing")
        done = run([*own, "sh", "-c", shell])
        return self.one_line(done.returncode, done.stderr), done.stdout.decode().split()

    def credentials(self, database: Path) -> int:
        """Return the number of credentials in a database."""
        with closing(sqlite3.connect(database)) as connection:
            query = "SELECT count(*) FROM records WHERE kind = 'credentials'"
            (count,) = connection.execute(query).fetchone()
        return int(count)

    def test_writes_meanwhile(self) -> None:
        """A backup contains every write that was confirmed before it began; the writes go on."""
        before = self.credentials(self.tower.state / "tower.db")
        writer = Writer(self.tower.admin())
        writer.start()
        self.addCleanup(writer.stop)
        for number in range(BACKUPS):
            confirmed = writer.acknowledged
            wait_for("some writes", lambda: writer.failure or writer.acknowledged > confirmed + 5)  # noqa: B023
            confirmed = writer.acknowledged
            self.tower.tower("backup", str(self.target / f"{number}.backup"))
            self.assertEqual(writer.failure, "")
            at_most = writer.acknowledged + 1
            self.assertGreater(at_most, confirmed + 1)
            place = self.folder / f"restored-{number}"
            self.restored(self.target / f"{number}.backup", place)
            count = self.credentials(place / "tower.db") - before
            self.assertLessEqual(confirmed, count)
            self.assertLessEqual(count, at_most)

    def test_full_disk(self) -> None:
        """A full disk gives one line, and leaves no part of a backup or of a restore."""
        self.add_large()
        line, left = self.on_tiny_disk(self.target, "backup", str(self.file))
        self.assertIn(f"cannot write {self.file}: No space left on device: free space there", line)
        self.assertEqual(left, [])
        self.tower.tower("backup", str(self.file))
        self.fresh.mkdir(0o700)
        line, left = self.on_tiny_disk(self.fresh, "restore", str(self.file), state=self.fresh)
        self.assertIn(f"cannot restore into {self.fresh}: No space left on device: free space there", line)
        self.assertEqual(left, ["lock"])

    def test_killed_backup(self) -> None:
        """A killed backup leaves the earlier one unchanged, and no obstacle."""
        large = self.add_large()
        self.tower.tower("backup", str(self.file))
        for _ in range(ATTEMPTS):
            kept = self.file.read_bytes()
            if self.kill_when(self.target, ".tower.backup.*", "backup", str(self.file), "--force"):
                break
        else:
            self.fail("the backup was always faster")
        self.assertEqual(self.file.read_bytes(), kept)
        (draft,) = self.target.glob(".tower.backup.*")
        self.assertEqual(stat.S_IMODE(draft.stat().st_mode), 0o600)
        self.tower.tower("backup", str(self.file), "--force")
        self.assertNotEqual(self.file.read_bytes(), kept)
        self.assertIn(str(large), read(self.file).files)

    def test_killed_restore(self) -> None:
        """After a killed restore, the proxy does not start, and the cure in its line works."""
        large = self.add_large()
        self.tower.tower("backup", str(self.file))
        for _ in range(ATTEMPTS):
            if self.kill_when(self.fresh, "restoring", "restore", str(self.file), state=self.fresh):
                break
            shutil.rmtree(self.fresh)
        else:
            self.fail("the restore was always faster")
        started = run([script("tower-proxy"), f"--state-dir={self.fresh}", "--port=1", "--secure-port=2"])
        (line,) = (started.stdout + started.stderr).decode().splitlines()
        self.assertEqual(started.returncode, 1)
        self.assertIn("a restore was interrupted: empty the directory and run 'tower restore' again", line)
        self.assertIn("interrupted", self.refusal("backup", str(self.file), "--force", state=self.fresh))
        self.assertIn("not empty", self.refusal("restore", str(self.file), state=self.fresh))
        shutil.rmtree(self.fresh)
        self.assertIn("start tower-proxy", self.restored(self.file, self.fresh))
        self.assertEqual((self.fresh / large).read_bytes(), (self.tower.state / large).read_bytes())

    def test_other_files(self) -> None:
        """A damaged, cut, newer or foreign file gives one line, as a directory with files does."""
        self.tower.tower("backup", str(self.file))
        whole = self.file.read_bytes()
        bad = self.target / "bad"
        newer = gzip.compress(gzip.decompress(whole).replace(b'"format": 1', b'"format": 2', 1))
        middle = len(whole) // 2
        for content, words in (
            (whole[:middle], "not a complete backup of Tower"),
            (whole[:middle] + bytes(64) + whole[middle + 64 :], "not a complete backup of Tower"),
            (newer, "made by a newer Tower"),
            (b"", "not a complete backup of Tower"),
            (b"something else", "not a complete backup of Tower"),
        ):
            bad.write_bytes(content)
            line = self.refusal("restore", str(bad), state=self.fresh)
            self.assertIn(str(bad), line)
            self.assertIn(words, line)
            self.assertFalse(self.fresh.exists())
        self.assertIn("No such file", self.refusal("restore", str(self.target / "none"), state=self.fresh))
        self.assertIn("Is a directory", self.refusal("restore", str(self.target), state=self.fresh))
        self.assertIn("--force", self.refusal("backup", str(self.file)))
        self.assertIn("Is a directory", self.refusal("backup", str(self.target), "--force"))
        self.assertEqual(self.file.read_bytes(), whole)
        self.fresh.mkdir(0o700)
        (self.fresh / "precious").write_text("precious")
        line = self.refusal("restore", str(self.file), state=self.fresh)
        self.assertIn("not empty (it has precious): restore into a new directory", line)
        self.assertEqual(set(os.listdir(self.fresh)) - {"lock"}, {"precious"})
