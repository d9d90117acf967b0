"""The thread that writes log lines, so that a slow disk or a blocked pipe delays nothing.

Lines wait in a queue of limited size.  Lines beyond it, and lines that the destination refuses (a full disk,
a closed pipe), are dropped and counted; a later line has their number.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from queue import SimpleQueue

from tower.logs.standard_output import write_some

#: Most bytes that wait to be written.
QUEUE_LIMIT = 4 * 1024 * 1024

#: Bytes written at once.
PIECE = 64 * 1024

#: Descriptor of standard error.
STDERR = 2

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

#: Closes and opens the file again.
_REOPEN = None

_Queue = SimpleQueue[bytes | None]


class LogWriter:
    """Appends lines to a file, or to a descriptor.

    :param path: of the file, which only its owner can read; None: *descriptor*.
    :param entry: returns a warning of the log itself as a log entry.
    :param seconds: returns monotonic time, s.
    :param descriptor: None: that of standard error.
    :param lock: held while lines are written.
    :raise OSError: the file cannot be opened, or is not a regular file.
    """

    def __init__(
        self,
        path: Path | None,
        entry: Callable[[str], str],
        seconds: Callable[[], float] = time.monotonic,
        descriptor: int | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._path = path
        self._make_entry = entry
        self._seconds = seconds
        self._descriptor = STDERR if descriptor is None else descriptor
        self._lock = nullcontext() if lock is None else lock
        if path is not None:
            self._descriptor = _open(path)
        self._lost, self._cause, self._torn = 0, "", False
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # twistd forks after the first lines

    def _reset(self) -> None:
        """Start with an empty queue and no thread: at the beginning, and in a child process."""
        self._queue: _Queue = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._put = self._taken = self._dropped = 0
        self._moved = self._seconds()

    def write(self, text: str) -> None:
        """Queue whole lines; never blocks, and may be called by a signal handler."""
        line = text.encode("utf-8", "backslashreplace")
        if self._put - self._taken + len(line) > QUEUE_LIMIT:
            self._dropped += 1
            return
        if self._put == self._taken:
            self._moved = self._seconds()
        self._put += len(line)
        self._queue.put(line)
        self._start()

    def reopen(self) -> None:
        """Open the file again, which was renamed; lines before go to the old one."""
        self._queue.put(_REOPEN)
        self._start()

    def flush(self, timeout: float) -> bool:
        """Wait until all lines are written, at most *timeout* s; return whether they are."""
        deadline = self._seconds() + timeout
        while self._taken < self._put:
            if self._seconds() > deadline:
                return False
            time.sleep(0.005)
        return True

    @property
    def blocked(self) -> float:
        """Time that the next lines have waited for the destination, s."""
        return self._seconds() - self._moved if self._taken < self._put else 0.0

    def _entry(self, text: str) -> bytes:
        return self._make_entry(text).encode("utf-8", "backslashreplace")

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(self._queue,), name="log", daemon=True)
            self._thread.start()

    # In the thread

    def _work(self, queue: _Queue) -> None:
        while True:
            item = queue.get()
            lines: list[bytes] = []
            size = 0
            while item is not _REOPEN:
                lines.append(item)
                size += len(item)
                if size >= PIECE or queue.empty():
                    break
                item = queue.get()
            if lines:
                self._write_out(lines)
                self._moved = self._seconds()  # before the next: `write` then sets it for an empty queue
                self._taken += size
            if item is _REOPEN:
                self._open_again()

    def _write_out(self, lines: list[bytes]) -> None:
        if self._dropped:
            self._lost, self._dropped = self._lost + self._dropped, 0
            self._cause = self._cause or "they came faster than they could be written"
        try:
            if self._lost:
                self._send([self._entry(f"{self._lost} log lines were lost: {self._cause}")])
                self._lost, self._cause = 0, ""
            self._send(lines)
        except OSError as e:
            self._lost += len(lines)
            self._cause = (e.strerror or str(e)).lower()

    def _send(self, lines: Iterable[bytes]) -> None:
        """Write all of *lines*; a line that was cut before is ended first."""
        left = memoryview((b"\n" if self._torn else b"") + b"".join(lines))
        with self._lock:
            while left:
                written = write_some(self._descriptor, left)
                self._torn = left[written - 1] != 0x0A
                left = left[written:]

    def _open_again(self) -> None:
        if self._path is None:
            return
        try:
            opened = _open(self._path)
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            text = f"cannot open log file {self._path} ({reason}): the previous file stays in use"
            self._write_out([self._entry(text)])
            return
        os.close(self._descriptor)
        self._descriptor, self._torn = opened, False


def _open(path: Path) -> int:
    descriptor = os.open(path, _FLAGS, 0o600)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISCHR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(None, "not a regular file", str(path))
