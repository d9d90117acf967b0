"""Reading a file that somebody named, which may be no file at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from tower.files import ANYWHERE, Files


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
