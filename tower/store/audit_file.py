"""The file of the audit log: lines are added to it, and when it is large it is put aside.

Names, sizes and ages are as kube-apiserver has them: ``audit.log`` is put aside as
``audit-2026-11-22T03-29-00.000.log``, with the time, UTC, at which that happened.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

#: Means the standard output, as a path.
STANDARD_OUTPUT = "-"

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}")


class AuditBackend(Protocol):
    """Where lines can be added; called from a thread of its own."""

    def write(self, lines: bytes) -> None:
        """Add whole lines: all of them or, after an `OSError`, none."""

    def close(self) -> None:
        """Write no more."""


class StandardOutput:
    """The standard output of the program."""

    def write(self, lines: bytes) -> None:
        """See `AuditBackend.write`; here a part of them may be there after an error."""
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Leave it open to others."""


class RotatingFile:
    """A file that is put aside when it is large.

    Only its owner can read it.  If somebody else moves or removes it (logrotate), a new one is begun.

    :param size_limit: of the file, B; it is put aside before it gets larger.
    :param backups: how many that were put aside are kept; 0: any number.
    :param days: how long these are kept, days; 0: for ever.
    :param seconds: the time of day, s since the epoch.
    """

    def __init__(
        self, path: Path, size_limit: int, backups: int, days: int, seconds: Callable[[], float]
    ) -> None:
        self.path = path
        self._size_limit = size_limit
        self._backups = backups
        self._days = days
        self._seconds = seconds
        self._descriptor = -1

    def check(self) -> None:
        """Make sure that it can be written, and leave it closed.

        :raise OSError: it cannot.
        """
        try:
            self._open()
        finally:
            self.close()

    def write(self, lines: bytes) -> None:
        """See `AuditBackend.write`."""
        size = self._size()
        if size and size + len(lines) > self._size_limit:
            self._put_aside()
            size = self._size()
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            os.ftruncate(self._descriptor, size)  # half a line would spoil the next one, too
            raise

    def close(self) -> None:
        """See `AuditBackend.close`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _size(self) -> int:
        """Return the size of the file that has the path now, B, having opened that one."""
        if self._descriptor >= 0:
            own = os.fstat(self._descriptor)
            try:
                there = os.stat(self.path)
            except FileNotFoundError:
                there = None
            if there is not None and (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
                return own.st_size
            self.close()
        return self._open()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        self._descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise OSError(None, "not a regular file", str(self.path))
        return status.st_size

    def _put_aside(self) -> None:
        self.close()
        now = datetime.fromtimestamp(self._seconds(), UTC)
        while (aside := self._aside(now)).exists():
            now += timedelta(milliseconds=1)
        self.path.rename(aside)
        self._remove_old(now)

    def _aside(self, moment: datetime) -> Path:
        stamp = f"{moment:%Y-%m-%dT%H-%M-%S}.{moment.microsecond // 1000:03}"
        return self.path.with_name(f"{self.path.stem}-{stamp}{self.path.suffix}")

    def _remove_old(self, now: datetime) -> None:
        """Remove what is too old, and what is too many."""
        newest = sorted(self._put_by(), reverse=True)
        oldest = self._aside(now - timedelta(days=self._days)).name if self._days else ""
        for place, name in enumerate(newest):
            if name < oldest or 0 < self._backups <= place:
                self.path.with_name(name).unlink(missing_ok=True)

    def _put_by(self) -> list[str]:
        """Return the names of those that were put aside."""
        before, behind = f"{self.path.stem}-", self.path.suffix
        pattern = re.compile(re.escape(before) + _STAMP.pattern + re.escape(behind))
        return [name for name in os.listdir(self.path.parent) if pattern.fullmatch(name)]
