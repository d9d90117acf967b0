"""The state directory: permissions, lock, and behavior after crashes and on a full disk."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tower.errors import ConfigurationError
from tower.trust.statedir import FILE_LIMIT, StateDir


class StateDirTests(SynchronousTestCase):
    """Each test has a path where nothing is yet."""

    def setUp(self) -> None:
        """Choose a path, and restore the umask afterwards."""
        self.path = Path(self.mktemp())
        umask = os.umask(0o022)
        os.umask(umask)
        self.addCleanup(os.umask, umask)

    def refused(self, *words: str) -> None:
        """Expect one line with the directory's name and *words*."""
        error = str(self.assertRaises(ConfigurationError, StateDir, self.path))
        for word in (str(self.path), *words):
            self.assertIn(word, error)

    def mode(self, path: Path) -> int:
        """Return the permissions of a file."""
        return stat.S_IMODE(path.stat().st_mode)

    def test_created(self) -> None:
        """A new directory, its parents, and what the program writes later are the owner's alone."""
        self.path = self.path / "deep" / "down"
        state = StateDir(self.path)
        self.assertEqual(state.path, self.path.absolute())
        for directory in (state.path, state.path.parent, state.path.parent.parent):
            self.assertEqual(self.mode(directory), 0o700)
        (state.path / "later").touch()
        self.assertEqual(self.mode(state.path / "later"), 0o600)

    def test_reused(self) -> None:
        """An existing directory is unchanged."""
        StateDir(self.path).write("key", b"1")
        self.assertEqual(StateDir(str(self.path)).read("key"), b"1")

    def test_readable_by_others(self) -> None:
        """A directory that group or others may look into is refused, with the command that cures it."""
        for mode in (0o750, 0o701, 0o707, 0o720):
            self.path.mkdir(exist_ok=True)
            self.path.chmod(mode)
            self.refused(f"{mode:03o}", "chmod 700")
        self.path.chmod(0o700)
        StateDir(self.path)

    def test_owned_by_another(self) -> None:
        """A directory of another user is refused, with the command that cures it."""
        if os.geteuid() != 0:
            raise SkipTest("only root can give a directory away")
        self.path.mkdir(mode=0o700)
        os.chown(self.path, 12345, -1)
        self.refused("12345", "chown")

    def test_no_directory(self) -> None:
        """A file at its path, or an impossible path, is named in the error."""
        self.path.touch()
        self.refused("is a file")
        self.path = self.path / "below"
        self.refused("Not a directory")

    def test_one_program(self) -> None:
        """A second process is rejected until the first releases the lock."""
        first, second = StateDir(self.path), StateDir(self.path)
        first.lock()
        first.lock()
        error = str(self.assertRaises(ConfigurationError, second.lock))
        self.assertIn("in use by another Tower process", error)
        first.close()
        first.close()
        second.lock()
        second.close()

    def test_lock_of_the_dead(self) -> None:
        """A killed process leaves no lock."""
        program = (
            "import os, tower.trust.statedir as s; "
            f"s.StateDir({str(self.path)!r}).lock(); os.kill(os.getpid(), 9)"
        )
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=False
        )
        state = StateDir(self.path)
        self.assertTrue((self.path / "lock").exists())
        state.lock()
        state.close()

    def test_files(self) -> None:
        """Written files are read back, private by default, and can be removed."""
        state = StateDir(self.path)
        self.assertIsNone(state.read("key"))
        state.write("key", b"one")
        state.write("key", b"two")
        os.umask(0)
        state.write("ca.pem", b"public", 0o644)
        self.assertEqual(state.read("key"), b"two")
        self.assertEqual(self.mode(self.path / "key"), 0o600)
        self.assertEqual(self.mode(self.path / "ca.pem"), 0o644)
        self.assertEqual(sorted(os.listdir(self.path)), ["ca.pem", "key"])
        state.remove("key")
        state.remove("key")
        self.assertIsNone(state.read("key"))

    def test_full_disk(self) -> None:
        """When the disk is full, the old file stays, no rest of the new one does, and the error names it."""
        state = StateDir(self.path)
        state.write("key", b"old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            error = str(self.assertRaises(ConfigurationError, state.write, "key", b"x" * 10000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        self.assertIn(str(self.path / "key"), error)
        self.assertEqual(state.read("key"), b"old")
        self.assertEqual(os.listdir(self.path), ["key"])

    def test_unreadable(self) -> None:
        """An unreadable file is named in the error, and a too large one is not read completely."""
        state = StateDir(self.path)
        (self.path / "key").mkdir()
        self.assertIn("key", str(self.assertRaises(ConfigurationError, state.read, "key")))
        with (self.path / "large").open("wb") as file:
            file.truncate(FILE_LIMIT + 1)
        self.assertIn("large", str(self.assertRaises(ConfigurationError, state.read, "large")))

    def test_cannot_remove(self) -> None:
        """A file that cannot be removed is named in the error."""
        state = StateDir(self.path)
        (self.path / "key").mkdir()
        self.assertIn("key", str(self.assertRaises(ConfigurationError, state.remove, "key")))

    def test_names(self) -> None:
        """Names cannot refer to files outside the directory."""
        state = StateDir(self.path)
        for name in ("", "..", "a/b", "/etc/passwd", ".hidden", "lock"):
            self.assertRaises(ValueError, state.read, name)
            self.assertRaises(ValueError, state.write, name, b"")

    def test_rename(self) -> None:
        """A file replaces another one; without it, the error names both."""
        state = StateDir(self.mktemp())
        state.write("key", b"old")
        state.write("key.next", b"new")
        state.rename("key.next", "key")
        self.assertEqual((state.read("key"), state.read("key.next")), (b"new", None))
        error = str(self.assertRaises(ConfigurationError, state.rename, "key.next", "key"))
        self.assertIn("key.next", error)
        self.assertEqual(state.read("key"), b"new")
