"""Tests for `tower.doctor.machine`."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tests.doctor.kit import DoctorTestCase
from tower.doctor.findings import Course, Finding
from tower.doctor.machine import Directory, ReadOnly, open_files
from tower.errors import ConfigurationError
from tower.trust.statedir import StateDir


class FileLimitTests(DoctorTestCase):
    """The limit of open files."""

    def test_limits(self) -> None:
        """The hard limit counts, because the programs raise theirs to it."""
        for hard, grade in ((resource.RLIM_INFINITY, "ok"), (1 << 20, "ok"), (1024, "warn"), (64, "FAIL")):
            verdict = open_files(lambda _, hard=hard: (64, hard))  # type: ignore[misc]
            self.assertEqual(verdict.grade, grade)
            self.assertEqual("LimitNOFILE" in verdict.cure, grade != "ok")


class DirectoryTests(DoctorTestCase):
    """State directories."""

    def setUp(self) -> None:
        """Create a private directory."""
        super().setUp()
        self.path = Path(self.mktemp())
        self.path.mkdir(mode=0o700)

    def look(self, path: Path | None = None, *, is_required: bool = True) -> dict[str, Finding]:
        """Return the findings."""
        directory = Directory(path or self.path, "tower-proxy", is_required=is_required)
        return self.found(Course(directory.steps()).run())

    def test_sound(self) -> None:
        """A private directory with free space is fine, and nothing is created in it."""
        self.assertLessEqual(self.grades(self.look()), {"ok", "warn"})
        self.assertEqual(list(self.path.iterdir()), [])

    def test_missing(self) -> None:
        """A missing directory is a failure only if it is required."""
        missing = self.path / "a" / "b"
        self.assertIn("--state-dir", self.failed(self.look(missing)))
        self.assertEqual(self.look(missing, is_required=False)["state directory"].verdict.grade, "ok")
        self.assertFalse(missing.exists())

    def test_modes(self) -> None:
        """Other users must not read the directory, nor files in it."""
        self.path.chmod(0o750)
        self.assertIn(f"chmod 700 {self.path}", self.failed(self.look()))
        self.path.chmod(0o700)
        (self.path / "key").touch()
        (self.path / "key").chmod(0o644)
        verdict = self.look()["state directory"].verdict
        self.assertEqual((verdict.grade, verdict.cure), ("warn", f"chmod 600 {self.path}/key"))

    def test_several_files(self) -> None:
        """One command cures the modes of all files."""
        paths = [self.path / name for name in ("host-key", "tower.db")]
        for path in paths:
            path.touch(0o644)
            path.chmod(0o644)
        verdict = self.look()["state directory"].verdict
        self.assertIn("are accessible to other users", verdict.seen)
        self.assertEqual(verdict.cure, f"chmod 600 {paths[0]} {paths[1]}")

    def test_owner(self) -> None:
        """A directory of another user is named with both users."""
        self.patch(os, "geteuid", lambda: 4711)
        self.assertIn("this command runs as 4711", self.failed(self.look()))

    def test_not_a_directory(self) -> None:
        """A file is rejected as a state directory."""
        (self.path / "file").touch()
        self.assertIn("not a directory", self.failed(self.look(self.path / "file")))

    def test_full_disk(self) -> None:
        """Little free space is a warning, none is a failure, for blocks and for inodes."""
        real = os.statvfs(self.path)

        def disk(free: int, inodes: int) -> None:
            values = [*real]
            values[0:2], values[4], values[5:8] = [1, 1], free, [100, inodes, inodes]
            self.patch(os, "statvfs", lambda _: os.statvfs_result(values))

        for free, inodes, grade in (
            (1 << 40, 9, "ok"),
            (100 << 20, 9, "warn"),
            (1, 9, "FAIL"),
            (1 << 40, 0, "FAIL"),
        ):
            disk(free, inodes)
            self.assertEqual(self.look()["free disk"].verdict.grade, grade)

    def test_lock(self) -> None:
        """A running program holds the lock; the check does not."""
        directory = Directory(self.path, "tower-proxy", is_required=True)
        self.assertFalse(directory.is_locked())
        state = StateDir(self.path)
        state.lock()
        self.addCleanup(state.close)
        self.assertTrue(directory.is_locked())
        state.close()
        self.assertFalse(directory.is_locked())

    def test_read_only(self) -> None:
        """Files are read, and never written."""
        files = ReadOnly(self.path)
        self.assertIsNone(files.read("a"))
        (self.path / "a").write_bytes(b"x")
        self.assertEqual(files.read("a"), b"x")
        self.assertRaises(ConfigurationError, files.write, "a", b"y")
        self.assertRaises(ConfigurationError, files.read, ".")
