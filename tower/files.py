"""Access to files below one directory only, or anywhere.

Linux has ``RESOLVE_BENEATH`` of openat2(2) for this, which Python lacks.  Here the path is resolved one
directory at a time, so that no link can be inserted in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

#: Largest number of symbolic links in a path, as in Linux (path_resolution(7)).
LINK_LIMIT = 40

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Files(Protocol):
    """File system operations; all raise `OSError`."""

    def open(self, path: str | Path, flags: int, mode: int = 0o600) -> int:
        """Return a descriptor; see `os.open`."""

    def stat(self, path: str | Path) -> os.stat_result:
        """Return the status of the file at *path*; links are followed."""

    def is_link(self, path: str | Path) -> bool:
        """Return whether *path* is a symbolic link."""

    def replace(self, source: str | Path, target: str | Path) -> None:
        """Rename a file; *target* is replaced, also if it is a link."""

    def unlink(self, path: str | Path) -> None:
        """Remove a file or a link."""


class OutsideDirectory(OSError):
    """A path that is outside of the directory."""

    def __init__(self, path: str | Path, text: str = "a link in it points outside of its directory") -> None:
        super().__init__(errno.EXDEV, text, str(path))


class Anywhere:
    """The whole file system, for files that the operator names."""

    open = staticmethod(os.open)
    stat = staticmethod(os.stat)
    is_link = staticmethod(os.path.islink)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)


ANYWHERE: Files = Anywhere()


class Beneath:
    """Files below one directory; links that point outside are errors.

    Links that stay inside are followed: a mounted Secret of Kubernetes consists of them.

    :param root: absolute.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, path: str | Path, flags: int, mode: int = 0o600) -> int:
        """See `Files.open`."""
        with self._at(path, follow=not flags & os.O_EXCL) as (directory, name):
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)

    def stat(self, path: str | Path) -> os.stat_result:
        """See `Files.stat`."""
        with self._at(path) as (directory, name):
            return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def is_link(self, path: str | Path) -> bool:
        """See `Files.is_link`."""
        try:
            with self._at(path, follow=False) as (directory, name):
                os.readlink(name, dir_fd=directory)
        except OSError:
            return False
        return True

    def replace(self, source: str | Path, target: str | Path) -> None:
        """See `Files.replace`."""
        with self._at(source, follow=False) as (old, old_name), self._at(target, follow=False) as (new, name):
            os.replace(old_name, name, src_dir_fd=old, dst_dir_fd=new)

    def unlink(self, path: str | Path) -> None:
        """See `Files.unlink`."""
        with self._at(path, follow=False) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def _steps(self, path: str | Path) -> list[str]:
        """Return the parts of *path* below the directory, in reverse order."""
        text = os.fspath(path)
        for root in (str(self.root), os.path.realpath(self.root)):
            if text == root or text.startswith(f"{root.rstrip('/')}/"):
                parts = text[len(root) :].split("/")
                return [part for part in reversed(parts) if part not in ("", ".")]
        raise OutsideDirectory(path, "it lies outside of its directory")

    @contextmanager
    def _at(self, path: str | Path, *, follow: bool = True) -> Iterator[tuple[int, str]]:
        """Provide a descriptor of the file's directory, and the name in it.

        :param follow: whether to follow a link in the last part.
        """
        steps = self._steps(path)
        parents = [os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
        links = 0
        try:
            while steps:
                step = steps.pop()
                if step == "..":
                    if len(parents) == 1:
                        raise OutsideDirectory(path)
                    os.close(parents.pop())
                    continue
                target = _target(step, parents[-1]) if steps or follow else None
                if target is not None:
                    links += 1
                    if links > LINK_LIMIT:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                    steps += self._link_steps(path, target, parents)
                elif steps:
                    parents.append(os.open(step, _DIRECTORY, dir_fd=parents[-1]))
                else:
                    yield parents[-1], step
                    return
            yield parents[-1], "."
        finally:
            for descriptor in parents:
                os.close(descriptor)

    def _link_steps(self, path: str | Path, target: str, parents: list[int]) -> list[str]:
        """Return the parts of a link's target, in reverse order; an absolute one restarts *parents*."""
        if not target.startswith("/"):
            return [part for part in reversed(target.split("/")) if part not in ("", ".")]
        try:
            steps = self._steps(target)
        except OutsideDirectory:
            raise OutsideDirectory(path) from None
        while len(parents) > 1:
            os.close(parents.pop())
        return steps


def _target(name: str, directory: int) -> str | None:
    """Return the target of a link; None if there is no link."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


def read_plain(
    path: str | Path,
    limit: int,
    files: Files = ANYWHERE,
    check: Callable[[os.stat_result], object] = lambda _: None,
) -> bytes:
    """Return the first *limit* B of the regular file at *path*, or all of it.

    Other files are rejected at once: a pipe or a terminal would block the whole program.

    :param files: the allowed part of the file system.
    :param check: called with the status of the open file before it is read; may raise.
    :raise OSError: the file cannot be read, or is not a regular file.
    """
    descriptor = files.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        check(status)
        return file.read(limit)
