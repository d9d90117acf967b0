"""Tests of `tower.files`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.files import LINK_LIMIT, Beneath, OutsideDirectory, read_plain


class BeneathTests(SynchronousTestCase):
    """A directory among others."""

    def setUp(self) -> None:
        """Make files inside and outside of it."""
        self.folder = Path(self.mktemp()).absolute()
        self.root = self.folder / "root"
        (self.root / "a" / "b").mkdir(parents=True)
        (self.root / "a" / "b" / "file").write_bytes(b"inside")
        (self.folder / "secret").write_bytes(b"outside")
        self.files = Beneath(self.root)

    def read(self, path: str | Path) -> bytes:
        """Return what is in a file below the directory."""
        return read_plain(self.root / path, 99, self.files)

    def link(self, name: str, target: str | Path) -> None:
        """Make a link there."""
        (self.root / name).symlink_to(target)

    def test_inside(self) -> None:
        """A file is found, whatever the spelling, also where the directory itself is reached by a link."""
        for path in ("a/b/file", "./a//b/./file", "a/../a/b/file"):
            self.assertEqual(self.read(path), b"inside")
        (self.folder / "other").symlink_to(self.root)
        other = Beneath(self.folder / "other")
        for way in (self.folder / "other", self.root):
            self.assertEqual(read_plain(way / "a" / "b" / "file", 9, other), b"inside")

    def test_links_inside(self) -> None:
        """Links that stay inside are followed, as those of a Secret that Kubernetes mounts."""
        (self.root / "..2026").mkdir()
        (self.root / "..2026" / "id").write_bytes(b"key")
        self.link("..data", "..2026")
        self.link("id", "..data/id")
        self.link("up", "a/b/../b/file")
        self.link("whole", self.root / "a" / "b" / "file")
        self.assertEqual([self.read(name) for name in ("id", "up", "whole")], [b"key", b"inside", b"inside"])

    def test_escapes(self) -> None:
        """Paths to the outside are not opened, in any spelling, and neither are absolute ones."""
        self.link("file", self.folder / "secret")
        self.link("near", "../secret")
        self.link("directory", "..")
        self.link("a/far", "../../secret")
        self.link("root", "/")
        for path in (
            *("file", "near", "directory/secret", "a/far", "../secret", "a/../../secret", "root/etc/passwd"),
            *(self.folder / "secret", "/etc/passwd", f"{self.root}-secret"),
        ):
            self.assertRaises(OutsideDirectory, self.read, path)
            self.assertRaises(OutsideDirectory, self.files.stat, self.root / path)
            self.assertRaises(OutsideDirectory, self.files.open, self.root / path, os.O_WRONLY | os.O_CREAT)
        self.assertEqual((self.folder / "secret").read_bytes(), b"outside")

    def test_changed_meanwhile(self) -> None:
        """A link that replaces a directory or a file after a look is not followed."""
        real = os.readlink

        def look(name: str, *, dir_fd: int) -> str:
            try:
                return real(name, dir_fd=dir_fd)
            except OSError:
                if name == self.victim:
                    os.rename(name, "moved", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                    os.symlink(self.folder / "evil" / name, name, dir_fd=dir_fd)
                raise

        (self.folder / "evil" / "b").mkdir(parents=True)
        for name in ("b/file", "file"):
            (self.folder / "evil" / name).write_bytes(b"outside")
        self.patch(os, "readlink", look)
        for self.victim in ("file", "b"):
            self.assertRaises(OSError, self.read, "a/b/file")
            self.assertTrue((self.root / "a" / "moved").exists() or self.victim == "file")

    def test_loops(self) -> None:
        """A link to itself ends, and so does a long chain."""
        self.link("loop", "loop")
        self.assertIn("Too many levels", self.assertRaises(OSError, self.read, "loop").strerror)
        self.link("0", "a/b/file")
        for number in range(LINK_LIMIT):
            self.link(str(number + 1), str(number))
        self.assertEqual(self.read(str(LINK_LIMIT - 1)), b"inside")
        self.assertRaises(OSError, self.read, str(LINK_LIMIT))

    def test_no_files(self) -> None:
        """The directory itself, one inside it, and missing files."""
        for path, kind in ((".", IsADirectoryError), ("a", IsADirectoryError), ("x/y", FileNotFoundError)):
            self.assertRaises(kind, self.read, path)
        self.assertRaises(NotADirectoryError, self.read, "a/b/file/x")

    def test_changes(self) -> None:
        """Files are created, renamed and removed; a link in the last part is replaced itself."""
        descriptor = self.files.open(self.root / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(descriptor)
        self.link("link", self.folder / "secret")
        self.assertTrue(self.files.is_link(self.root / "link"))
        self.assertFalse(self.files.is_link(self.root / "new"))
        self.assertFalse(self.files.is_link(self.root / "nothing"))
        self.files.replace(self.root / "new", self.root / "link")
        self.assertFalse((self.root / "link").is_symlink())
        self.files.unlink(self.root / "link")
        self.assertRaises(OutsideDirectory, self.files.replace, self.root / "a", self.folder / "a")
        self.assertRaises(OutsideDirectory, self.files.unlink, self.folder / "secret")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["root", "secret"])

    def test_descriptors(self) -> None:
        """No descriptor stays open, after any error."""
        before = len(os.listdir("/proc/self/fd"))
        self.link("out", "a/b/../../../secret")
        self.link("whole", self.root / "a" / "b" / "file")
        for path in ("a/b/file", "whole", "out", "nothing/x", "a/b/file/x"):
            try:
                self.read(path)
            except OSError:
                pass
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
