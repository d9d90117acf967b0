"""Files that appear complete or not at all, durably."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Errors of file systems without hard links, such as FAT.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class Draft:
    """A new private file that replaces *target*; see `draft_of`.

    :ivar path: of the draft.
    :raise OSError: its directory is missing or cannot be written.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self.path, flags, 0o600), "wb")

    def write(self, data: bytes, mode: int = 0o600) -> None:
        """Write the content; *mode* does not depend on the umask."""
        self._file.write(data)
        self._file.flush()
        os.fchmod(self._file.fileno(), mode)
        os.fsync(self._file.fileno())

    def resemble(self, status: os.stat_result) -> None:
        """Set the mode of another file and, as root, its owner."""
        if os.geteuid() == 0:
            os.fchown(self._file.fileno(), status.st_uid, status.st_gid)
        os.fchmod(self._file.fileno(), stat.S_IMODE(status.st_mode))

    def put(self, *, replace: bool = True) -> None:
        """Move the draft to its target; a link there is replaced.

        :param replace: whether another file may be there.
        :raise FileExistsError: there is one, and *replace* is false.
        """
        if replace:
            os.replace(self.path, self._target)
        else:
            self._put_new()
        sync(self._target.parent)

    def _put_new(self) -> None:
        try:
            os.link(self.path, self._target)
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
            os.close(os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.replace(self.path, self._target)
        else:
            self.path.unlink()

    def discard(self) -> None:
        """Close the draft, and remove it unless it was put."""
        try:
            self._file.close()
        finally:
            self.path.unlink(missing_ok=True)


@contextmanager
def draft_of(target: Path) -> Iterator[Draft]:
    """Provide a draft of the file *target*, in the same directory; it is removed unless it was put."""
    draft = Draft(target)
    try:
        yield draft
    finally:
        draft.discard()


def sync(directory: Path) -> None:
    """Make a rename or removal in *directory* durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
