"""The audit log file and its rotation.

File names, size and age limits are those of kube-apiserver: ``audit.log`` is rotated to
``audit-2026-11-22T03-29-00.000.log``, with the time of the rotation in UTC.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from attrs import define, field

from tower.logs.standard_output import write_lines

#: Path that stands for standard output.
STANDARD_OUTPUT = "-"

#: Most pieces in one system call.
_MOST_PIECES = os.sysconf("SC_IOV_MAX")

_STAMP = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}"


class AuditBackend(Protocol):
    """Destination of audit lines; blocks, so it is called in a worker thread."""

    def write(self, pieces: Sequence[bytes]) -> None:
        """Append *pieces*, which consist of whole lines: all of them or, on an `OSError`, none."""

    def close(self) -> None:
        """Close the destination."""


class StandardOutput:
    """The standard output of the process.

    :param descriptor: of standard output.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, pieces: Sequence[bytes]) -> None:
        """See `AuditBackend.write`; on an error, some of the lines may have been written."""
        for piece in pieces:
            write_lines(self._descriptor, piece)

    def close(self) -> None:
        """No-op: standard output is shared."""


@define(eq=False)
class RotatingFile:
    """A file that only its owner can read, rotated by size.

    If another process moves or removes the file (logrotate), a new one is created.

    :param size_limit: size at which the file is rotated, B.
    :param backups: number of rotated files to keep; 0: all.
    :param days: days to keep rotated files; 0: for ever.
    :param seconds: returns the time of day, s since the epoch.
    """

    path: Path
    _size_limit: int
    _backups: int
    _days: int
    _seconds: Callable[[], float]
    _descriptor: int = field(default=-1, init=False)

    def check(self) -> None:
        """Check that the file can be written; leave it closed.

        :raise OSError: it cannot be written.
        """
        try:
            self._open()
        finally:
            self.close()

    def write(self, pieces: Sequence[bytes]) -> None:
        """See `AuditBackend.write`."""
        size = self._size()
        if size and size + sum(map(len, pieces)) > self._size_limit:
            self._rotate()
            size = self._size()
        try:
            for begin in range(0, len(pieces), _MOST_PIECES):
                self._append(pieces[begin : begin + _MOST_PIECES])
        except OSError:
            os.ftruncate(self._descriptor, size)  # half a line would corrupt the next one, too
            raise

    def _append(self, pieces: Sequence[bytes]) -> None:
        """Append *pieces* without a copy of them, which would take longer than the system call."""
        written = os.writev(self._descriptor, pieces)
        if written < sum(map(len, pieces)):
            left = memoryview(b"".join(pieces))[written:]
            while left:
                left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        """See `AuditBackend.close`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _size(self) -> int:
        """Return the size of the file at the path, B; reopen it if it is another file now."""
        if self._descriptor >= 0:
            opened = os.fstat(self._descriptor)
            try:
                current = os.stat(self.path)
            except FileNotFoundError:
                current = None
            if current is not None and (current.st_dev, current.st_ino) == (opened.st_dev, opened.st_ino):
                return opened.st_size
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

    def _rotate(self) -> None:
        self.close()
        now = datetime.fromtimestamp(self._seconds(), UTC)
        while (backup := self._backup(now)).exists():
            now += timedelta(milliseconds=1)
        self.path.rename(backup)
        self._remove_old(now)

    def _backup(self, moment: datetime) -> Path:
        """Return the path of a file that was rotated at *moment*."""
        stamp = f"{moment:%Y-%m-%dT%H-%M-%S}.{moment.microsecond // 1000:03}"
        return self.path.with_name(f"{self.path.stem}-{stamp}{self.path.suffix}")

    def _remove_old(self, now: datetime) -> None:
        """Remove rotated files beyond the limits of age and number."""
        pattern = re.compile(re.escape(f"{self.path.stem}-") + _STAMP + re.escape(self.path.suffix))
        backups = sorted(filter(pattern.fullmatch, os.listdir(self.path.parent)), reverse=True)
        oldest = self._backup(now - timedelta(days=self._days)).name if self._days else ""
        for number, name in enumerate(backups):
            if name < oldest or 0 < self._backups <= number:
                self.path.with_name(name).unlink(missing_ok=True)
