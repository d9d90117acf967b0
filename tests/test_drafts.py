"""Tests of `tower.drafts`."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tower.drafts import draft_of


class DraftTests(SynchronousTestCase):
    """Files that appear complete or not at all."""

    def setUp(self) -> None:
        """Make a directory."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.file = self.folder / "file"

    def put(self, data: bytes = b"new", mode: int = 0o600, *, replace: bool = True) -> None:
        """Write the file."""
        with draft_of(self.file) as draft:
            draft.write(data, mode)
            draft.put(replace=replace)

    def check(self, data: bytes, mode: int) -> None:
        """Check content and mode of the file, which is the only one."""
        self.assertEqual([path.name for path in self.folder.iterdir()], ["file"])
        self.assertEqual((self.file.read_bytes(), stat.S_IMODE(self.file.lstat().st_mode)), (data, mode))

    def test_modes(self) -> None:
        """The mode does not depend on the umask; until it is put, only the owner can read the draft."""
        old = os.umask(0o027)
        self.addCleanup(os.umask, old)
        with draft_of(self.file) as draft:
            self.assertEqual(stat.S_IMODE(draft.path.stat().st_mode), 0o600)
            draft.write(b"new", 0o644)
            draft.put()
        self.check(b"new", 0o644)

    def test_replaced(self) -> None:
        """An existing file is replaced, and a program that has it open reads the old content."""
        self.put(b"old", 0o644)
        with self.file.open("rb") as held:
            self.put()
            self.assertEqual(held.read(), b"old")
        self.check(b"new", 0o600)

    def test_link(self) -> None:
        """A link is replaced; the file that it names stays."""
        other = Path(self.mktemp())
        other.write_bytes(b"dear")
        self.file.symlink_to(other.absolute())
        self.put()
        self.check(b"new", 0o600)
        self.assertEqual(other.read_bytes(), b"dear")

    def test_new_only(self) -> None:
        """Without replacement, neither a file nor a link is replaced, also without hard links."""
        target = Path(self.mktemp()).absolute()
        for name in ("file", "link"):
            self.file.symlink_to(target) if name == "link" else self.file.write_bytes(b"old")
            self.assertRaises(FileExistsError, self.put, replace=False)
            with patch("os.link", side_effect=OSError(errno.EPERM, "no links")):
                self.assertRaises(FileExistsError, self.put, replace=False)
            self.file.unlink()
        self.assertFalse(target.exists())
        self.put(replace=False)
        self.check(b"new", 0o600)
        self.file.unlink()
        with patch("os.link", side_effect=OSError(errno.EPERM, "no links")):
            self.put(b"newer", replace=False)
        self.check(b"newer", 0o600)

    def test_failures(self) -> None:
        """After an error, the old file stays and no draft is left; a missing directory is found at once."""
        self.put(b"old")
        for name in ("os.fsync", "os.replace"):
            with patch(name, side_effect=OSError(errno.ENOSPC, "full")):
                self.assertRaises(OSError, self.put)
        self.check(b"old", 0o600)
        self.file = self.folder / "none" / "file"
        self.assertRaises(FileNotFoundError, self.put)

    def test_resemble(self) -> None:
        """A draft gets the mode of another file, and as root its owner."""
        self.put(b"old", 0o640)
        status = self.file.stat()
        owners: list[tuple[int, int]] = []
        with (
            patch("os.geteuid", return_value=0),
            patch("os.fchown", side_effect=lambda _, user, group: owners.append((user, group))),
            draft_of(self.file) as draft,
        ):
            draft.write(b"new")
            draft.resemble(status)
            draft.put()
        self.check(b"new", 0o640)
        self.assertEqual(owners, [(status.st_uid, status.st_gid)])
