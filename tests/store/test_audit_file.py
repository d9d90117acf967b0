"""Tests of `tower.store.audit_file`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.store.audit_file import RotatingFile, StandardOutput

NOON = 1_795_348_800.0  # 2026-11-22T12:00:00Z
DAY = 86_400.0
LINE = b"a line of 20 bytes.\n"


class RotatingFileTests(SynchronousTestCase):
    """The file on the disk."""

    def setUp(self) -> None:
        """Create a directory."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.path = self.folder / "audit.log"
        self.now = NOON

    def file(self, size_limit: int = 50, backups: int = 0, days: int = 0) -> RotatingFile:
        """Return a file that has room for two lines."""
        file = RotatingFile(self.path, size_limit, backups, days, lambda: self.now)
        self.addCleanup(file.close)
        return file

    def names(self) -> list[str]:
        """Return all files."""
        return sorted(path.name for path in self.folder.iterdir())

    def test_added(self) -> None:
        """Lines are appended, and only the owner can read the file."""
        self.path.write_bytes(LINE)
        os.chmod(self.path, 0o600)
        self.file().write([LINE])
        self.assertEqual(self.path.read_bytes(), LINE * 2)
        self.path.unlink()
        self.file().write([LINE])
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)

    def test_put_aside(self) -> None:
        """Before it would be too large it is put aside, whole, under the time of that."""
        file = self.file()
        for _ in range(3):
            file.write([LINE])
        self.assertEqual(self.names(), ["audit-2026-11-22T12-00-00.000.log", "audit.log"])
        self.assertEqual((self.folder / self.names()[0]).read_bytes(), LINE * 2)
        self.assertEqual(self.path.read_bytes(), LINE)

    def test_put_aside_at_once(self) -> None:
        """Two that are put aside in the same millisecond are both kept."""
        file = self.file()
        for _ in range(5):
            file.write([LINE])
        self.assertEqual(
            self.names(),
            ["audit-2026-11-22T12-00-00.000.log", "audit-2026-11-22T12-00-00.001.log", "audit.log"],
        )

    def test_too_long_a_line(self) -> None:
        """A line larger than the limit is written alone."""
        file = self.file()
        file.write([LINE])
        file.write([LINE * 9])
        file.write([LINE])
        self.assertEqual(len(self.names()), 3)

    def test_backups(self) -> None:
        """The newest rotated files are kept, and so are other files."""
        other = self.folder / "audit-2026.log"
        other.write_bytes(b"")
        file = self.file(backups=2)
        for _ in range(11):
            file.write([LINE])
            self.now += 1
        kept = [name for name in self.names() if name not in ("audit.log", other.name)]
        self.assertEqual(kept, ["audit-2026-11-22T12-00-08.000.log", "audit-2026-11-22T12-00-10.000.log"])
        self.assertTrue(other.exists())

    def test_quirk_13_age_is_not_number(self) -> None:
        """Days are days and a number is a number: neither limit is read from the other."""
        file = self.file(backups=0, days=1)
        for _ in range(3):
            file.write([LINE])
        self.now += DAY / 2
        for _ in range(2):
            file.write([LINE])
        self.assertEqual(len(self.names()), 3)
        self.now += DAY / 2 + 1
        for _ in range(2):
            file.write([LINE])
        self.assertEqual(
            self.names(),
            ["audit-2026-11-23T00-00-00.000.log", "audit-2026-11-23T12-00-01.000.log", "audit.log"],
        )

    def test_moved(self) -> None:
        """If another process moves or removes the file, a new one is created."""
        file = self.file()
        file.write([LINE])
        self.path.rename(self.folder / "elsewhere")
        file.write([LINE])
        self.assertEqual(self.path.read_bytes(), LINE)
        self.path.unlink()
        file.write([LINE])
        self.assertEqual(self.path.read_bytes(), LINE)
        self.assertEqual((self.folder / "elsewhere").read_bytes(), LINE)

    def test_no_half_lines(self) -> None:
        """A write that fails halfway leaves the file unchanged."""
        file = self.file(size_limit=10_000)
        file.write([LINE])
        write, calls = os.write, []

        def half(descriptor: int, pieces: list[bytes]) -> int:
            calls.append(len(pieces))
            return write(descriptor, pieces[0][:7])

        def full(_: int, data: bytes) -> int:
            calls.append(len(data))
            raise OSError(28, "No space left on device")

        self.patch(os, "writev", half)
        self.patch(os, "write", full)
        self.assertRaises(OSError, file.write, [LINE, LINE])
        self.assertEqual(calls, [2, 33])
        self.assertEqual(self.path.read_bytes(), LINE)

    def test_rest_of_pieces(self) -> None:
        """If one system call does not take all pieces, the rest follows."""
        file = self.file(size_limit=10_000)
        write = os.write
        self.patch(os, "writev", lambda descriptor, pieces: write(descriptor, pieces[0][:7]))
        file.write([LINE, LINE])
        self.assertEqual(self.path.read_bytes(), LINE * 2)

    def test_many_pieces(self) -> None:
        """More pieces than one system call takes are written in order."""
        file = self.file(size_limit=1_000_000)
        pieces = [b"%d\n" % number for number in range(os.sysconf("SC_IOV_MAX") + 5)]
        file.write(pieces)
        self.assertEqual(self.path.read_bytes(), b"".join(pieces))

    def test_check(self) -> None:
        """An unwritable file is detected before the first line; existing files are unchanged."""
        self.path.write_bytes(LINE)
        self.file().check()
        self.assertEqual(self.path.read_bytes(), LINE)
        self.path.unlink()
        self.path.mkdir()
        self.assertRaises(OSError, self.file().check)
        self.path.rmdir()
        os.mkfifo(self.path)
        self.assertRaises(OSError, self.file().check)
        reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        error = self.assertRaises(OSError, self.file().check)
        self.assertIn("not a regular file", str(error))
        self.path = self.folder / "nowhere" / "audit.log"
        self.assertRaises(FileNotFoundError, self.file().check)


class StandardOutputTests(SynchronousTestCase):
    """Standard output instead of a file."""

    def test_written(self) -> None:
        """All pieces are written, in order."""
        receiving, sending = os.pipe()
        self.addCleanup(os.close, receiving)
        self.addCleanup(os.close, sending)
        StandardOutput(sending).write([LINE, LINE[::-1]])
        self.assertEqual(os.read(receiving, 100), LINE + LINE[::-1])
