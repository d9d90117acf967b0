"""Files that are opened without leaving a directory, and files that are opened wherever they are.

Linux has ``RESOLVE_BENEATH`` of openat2(2) for this, which Python does not offer.  Here the path is walked by
hand, one directory at a time, so that nobody can put a link in the way in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

#: Most symbolic links in one path, as Linux has it (path_resolution(7)).
LINK_LIMIT = 40

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Files(Protocol):
    """What is needed of the file system; all of it raises `OSError`."""

    def open(self, path: str | Path, flags: int, mode: int = 0o600) -> int:
        """Return a descriptor; see `os.open`."""

    def stat(self, path: str | Path) -> os.stat_result:
        """Return what is at *path*, links followed."""

    def is_link(self, path: str | Path) -> bool:
        """Tell whether *path* is a symbolic link."""

    def replace(self, source: str | Path, target: str | Path) -> None:
        """Rename a file; what is at *target* is replaced, also if it is a link."""

    def unlink(self, path: str | Path) -> None:
        """Remove a file or a link."""


class LeadsOut(OSError):
    """A path that does not stay below the directory."""

    def __init__(self, path: str | Path, text: str = "a link in it leads out of its directory") -> None:
        super().__init__(errno.EXDEV, text, str(path))


class Anywhere:
    """The whole file system: for what the operator names."""

    open = staticmethod(os.open)
    stat = staticmethod(os.stat)
    is_link = staticmethod(os.path.islink)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)


ANYWHERE: Files = Anywhere()


class Beneath:
    """What is below one directory, which links inside it do not lead out of.

    Links that stay inside are followed: a Secret that Kubernetes mounts consists of such.

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
        """Return the parts of *path* below the directory, the last one first."""
        text = os.fspath(path)
        for root in (str(self.root), os.path.realpath(self.root)):
            if text == root or text.startswith(f"{root.rstrip('/')}/"):
                parts = text[len(root) :].split("/")
                return [part for part in reversed(parts) if part not in ("", ".")]
        raise LeadsOut(path, "it lies outside of its directory")

    @contextmanager
    def _at(self, path: str | Path, *, follow: bool = True) -> Iterator[tuple[int, str]]:
        """Give a descriptor of the directory that has the file, and its name there.

        :param follow: whether a link in the last place counts as what it leads to.
        """
        steps = self._steps(path)
        way = [os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
        links = 0
        try:
            while steps:
                step = steps.pop()
                if step == "..":
                    if len(way) == 1:
                        raise LeadsOut(path)
                    os.close(way.pop())
                    continue
                target = _target(step, way[-1]) if steps or follow else None
                if target is not None:
                    links += 1
                    if links > LINK_LIMIT:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                    steps += self._link_steps(path, target, way)
                elif steps:
                    way.append(os.open(step, _DIRECTORY, dir_fd=way[-1]))
                else:
                    yield way[-1], step
                    return
            yield way[-1], "."
        finally:
            for descriptor in way:
                os.close(descriptor)

    def _link_steps(self, path: str | Path, target: str, way: list[int]) -> list[str]:
        """Return where a link leads, the last step first; from the directory again if it is absolute."""
        if not target.startswith("/"):
            return [part for part in reversed(target.split("/")) if part not in ("", ".")]
        try:
            steps = self._steps(target)
        except LeadsOut:
            raise LeadsOut(path) from None
        while len(way) > 1:
            os.close(way.pop())
        return steps


def _target(name: str, directory: int) -> str | None:
    """Return where a link leads; None: it is none, or not there."""
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

    A pipe or a terminal would keep the whole program waiting for somebody to write: it is refused at once.

    :param files: where it is looked for.
    :param check: looks at the very file that is read, before; what it raises is raised.
    :raise OSError: it cannot be read, or is something else than a file.
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
