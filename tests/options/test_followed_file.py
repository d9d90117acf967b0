"""Tests of `tower.options.followed_file`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tower.errors import ConfigurationError
from tower.options.followed_file import LIMIT, FollowedFile


def number(content: bytes) -> int:
    """Return the number in *content*."""
    if not content.strip().isdigit():
        raise ValueError("not a number: give one")
    return int(content)


class FollowedFileTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with a Secret as Kubernetes mounts it, that holds 1."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.path = self.folder / "number"
        self.path.symlink_to("..data/number")
        self.version = 0
        self.swap("1")
        self.changes: list[int] = []
        self.file = FollowedFile("number-file", self.path, number)
        self.file.on_change = lambda: self.changes.append(self.file.value)

    def swap(self, content: str) -> None:
        """Replace the Secret's files, as the kubelet does."""
        self.version += 1
        (self.folder / f"..{self.version}").mkdir()
        (self.folder / f"..{self.version}" / "number").write_text(content)
        (self.folder / "..next").symlink_to(f"..{self.version}")
        os.rename(self.folder / "..next", self.folder / "..data")

    def test_swap(self) -> None:
        """A Secret's swap is a change only if the content is another."""
        self.file.check()
        self.swap("1")
        self.file.check()
        self.assertEqual((self.file.value, self.changes), (1, []))
        self.swap("2")
        self.file.check()
        self.assertEqual((self.file.value, self.changes), (2, [2]))

    def test_invalid(self) -> None:
        """The last valid value stays in use, and the problem is logged once."""
        lines = logged_lines(self)
        self.swap("secret")
        for _ in range(3):
            self.file.check()
        (text,) = lines
        self.assertIn(f"--number-file {self.path}: not a number: give one", text)
        self.assertNotIn("secret", text)
        self.assertEqual((self.file.value, self.changes), (1, []))
        self.swap("1")
        self.file.check()
        self.swap("wrong")
        self.file.check()
        self.assertEqual(len(lines), 2)

    def test_removed(self) -> None:
        """The value of a removed file stays in use."""
        lines = logged_lines(self)
        (self.folder / "..data").unlink()
        self.file.check()
        self.assertIn(": no such file or directory", lines[0])
        self.assertEqual(self.file.value, 1)

    def test_reload(self) -> None:
        """A reload reports a change, no change, and an error."""
        self.assertEqual(self.file.reload(), "unchanged")
        self.swap("2")
        self.assertEqual(self.file.reload(), "changed")
        self.swap("wrong")
        self.assertRaises(ConfigurationError, self.file.reload)
        self.assertEqual(self.file.value, 2)

    def test_failed_use(self) -> None:
        """A value that cannot be put into use is tried again, and the last one stays until it is used."""
        failing: ConfigurationError | None = ConfigurationError("no memory")

        def use() -> None:
            if failing is not None:
                raise failing

        self.file.on_change = use
        lines = logged_lines(self)
        self.swap("2")
        for _ in range(3):
            self.file.check()
            self.assertEqual((self.file.value, self.file.problem), (1, "no memory"))
            self.assertRaises(ConfigurationError, self.file.reload)
        self.assertEqual(len(lines), 1)
        failing = None
        self.file.check()
        self.assertEqual((self.file.value, self.file.problem), (2, ""))

    def test_not_at_start(self) -> None:
        """A file that cannot be used is an error that names the option, the file and the cure."""
        for verb, path, text in (
            ("open", self.folder / "none", "no such file or directory"),
            ("read", self.folder, "is a directory"),
            ("open", Path("/dev/zero"), "not a regular file"),
        ):
            with self.assertRaises(ConfigurationError) as caught:
                FollowedFile("number-file", path, number)
            self.assertEqual(
                str(caught.exception), f"--number-file: {verb} {path}: {text}: name a readable file"
            )
        self.swap("1" * (LIMIT + 1))
        with self.assertRaises(ConfigurationError) as caught:
            FollowedFile("number-file", self.path, number)
        self.assertIn("larger than", str(caught.exception))
