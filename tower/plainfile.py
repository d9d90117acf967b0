"""Reading a file that somebody named, which may be no file at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_plain(path: str | Path, limit: int) -> bytes:
    """Return the first *limit* B of the regular file at *path*, or all of it.

    A pipe or a terminal would keep the whole program waiting for somebody to write: it is refused at once.

    :raise OSError: it cannot be read, or is something else than a file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return file.read(limit)
