"""The audit log: lines are queued, and a worker thread appends them to the file in batches.

A slow, full or missing disk delays no request: lines are queued up to `QUEUE_LIMIT`; beyond it they are
dropped, counted and logged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.logs.standard_output import standard_output
from tower.metrics.families import counter
from tower.options.errors import OptionError
from tower.reactor.interfaces import IReactor
from tower.reactor.worker_thread import WorkerThread
from tower.store.audit_file import STANDARD_OUTPUT, AuditBackend, RotatingFile, StandardOutput

#: Delay after which queued lines are written, s, and number of queued bytes that are written without it.
#: Waking the thread costs as much as the lines of a hundred requests.
BATCH_DELAY = 0.1
MUCH = 1024 * 1024

#: Delay after a failed write, s.
RETRY_DELAY = 1.0

#: Least time between two messages about lost lines, s.
LOSS_PERIOD = 60.0

#: Most bytes of lines that wait for the disk.
QUEUE_LIMIT = 4 * 1024 * 1024

#: Longest time for which a request waits until its line is written, s.
WAIT_LIMIT = 5.0

#: Timeout of each of the last two writes, s.
STOP_TIMEOUT = 5.0

#: Unit of ``--audit-log-maxsize``, B.
MEGABYTE = 1_000_000


class AuditLog:
    """A queue of audit lines and the thread that writes them.

    :param thread: blocks on the disk.
    :param name: the file's name in log messages.
    :param kind: the log's kind there.
    :ivar lines: number of lines queued or lost.
    :ivar lost: number of lines dropped because the queue was full.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        thread: WorkerThread,
        file: AuditBackend,
        name: str,
        kind: str = "audit log",
    ) -> None:
        self._reactor = reactor
        self._thread = thread
        self._file = file
        self._name = name
        self._kind = kind
        self._queue: list[bytes] = []
        self._size = 0
        self._next_write: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        self._waiting: list[Deferred[bool]] = []
        self._failing = self._stopped = self._hanging = False
        self._accepted = True  # the last line
        self._loss_logged: float | None = None
        self.lines = self.lost = 0

    def put(self, line: bytes, count: int = 1) -> None:
        """Queue *line*, which ends with a line feed; it consists of *count* lines."""
        self.lines += count
        self._accepted = not self._stopped and self._size + len(line) <= QUEUE_LIMIT
        if not self._accepted:
            self._lose(count)
            return
        self._queue.append(line)
        self._size += len(line)
        if self._next_write is None and self._writing is None:
            self._next_write = self._reactor.callLater(BATCH_DELAY, self._write)
        if self._size - len(line) < MUCH <= self._size:
            self.hasten()

    def hasten(self) -> None:
        """Write the queued lines now, unless the last write has failed."""
        if self._next_write is not None and not (self._failing or self._stopped):
            self._next_write.reset(0)

    def flush(self) -> Deferred[bool]:
        """Write at once; return whether the last line, and those before it, are in the file.

        While the file cannot be written the result is False, without delay; the lines stay queued.
        """
        is_writable = self._accepted and not (self._failing or self._hanging)
        if not is_writable or (self._next_write is None and self._writing is None):
            return succeed(is_writable)
        if self._next_write is not None:
            self._next_write.reset(0)
        done: Deferred[bool] = Deferred()
        self._waiting.append(done)
        return done.addTimeout(WAIT_LIMIT, self._reactor, self._not_in_time)

    def _not_in_time(self, _failure: bool | Failure, _limit: float) -> bool:
        if not self._hanging:
            self._hanging = True
            self._log.error(
                "{kind} {name}: not written within {limit:g} s: the disk or reader is too slow",
                kind=self._kind,
                name=self._name,
                limit=WAIT_LIMIT,
            )
        return False

    def _lose(self, count: int) -> None:
        """Count lost lines, and log it from time to time."""
        self.lost += count
        now = self._reactor.seconds()
        if self._loss_logged is not None and now - self._loss_logged < LOSS_PERIOD:
            return
        self._loss_logged = now
        self._log.error(
            "{kind} {name}: lines lost so far: {lost}; the disk or reader is too slow",
            kind=self._kind,
            name=self._name,
            lost=self.lost,
        )

    def reopen(self) -> None:
        """Close the file; the next write opens it again, also if it was renamed."""
        if self._thread.started and not self._stopped:
            self._thread.defer(self._file.close).addErrback(self._not_closed)

    def _not_closed(self, failure: Failure) -> None:
        self._log.failure("cannot close {kind} {name}", failure, kind=self._kind, name=self._name)

    async def stop(self) -> None:
        """Write the queued lines and close the file; give up after twice `STOP_TIMEOUT`."""
        for _ in range(2):  # the write in progress, and the lines queued since it began
            if self._next_write is not None:
                self._next_write.cancel()
                self._write()
            if self._writing is not None:
                writing: Deferred[Any] = Deferred()
                self._writing.chainDeferred(writing)
                writing.addTimeout(STOP_TIMEOUT, self._reactor)
                await DeferredList([writing], consumeErrors=True)
        self._stopped = True
        if self._next_write is not None:
            self._next_write.cancel()
        if self._queue or self._writing is not None:
            self._log.error("the last lines of {kind} {name} are lost", kind=self._kind, name=self._name)
        if self._thread.started and self._writing is None:
            await self._thread.defer(self._file.close)
            self._thread.stop()

    def _write(self) -> None:
        """Write the queued lines in the thread."""
        self._next_write = None
        lines, self._queue = self._queue, []
        waiting, self._waiting = self._waiting, []
        self._writing = self._thread.defer(self._file.write, lines)
        self._writing.addCallbacks(self._written, self._not_written, (waiting,), errbackArgs=(lines, waiting))

    def _written(self, _: None, waiting: list[Deferred[bool]]) -> None:
        self._writing = None
        self._hanging = False
        if self._failing:
            self._failing = False
            self._log.info(
                "{kind} {name} is writable again; {lost} lines lost so far",
                kind=self._kind,
                name=self._name,
                lost=self.lost,
            )
        self._size = sum(map(len, self._queue))
        if self._queue:
            delay = 0 if self._waiting or self._size >= MUCH else BATCH_DELAY
            self._next_write = self._reactor.callLater(delay, self._write)
        _answer(waiting, is_stored=True)

    def _not_written(self, failure: Failure, lines: list[bytes], waiting: list[Deferred[bool]]) -> None:
        """Requeue the lines and retry."""
        self._writing = None
        self._hanging = False
        waiting += self._waiting
        self._waiting = []
        self._queue[:0] = lines
        if not self._failing:
            self._failing = True
            error = failure.value
            self._log.error(
                "Unable to write {kind}: {name}, the error is: {error}; up to {limit} MiB are queued",
                kind=self._kind,
                name=self._name,
                error=getattr(error, "strerror", None) or error,
                limit=QUEUE_LIMIT >> 20,
            )
        self._next_write = self._reactor.callLater(RETRY_DELAY, self._write)
        _answer(waiting, is_stored=False)


def _answer(waiting: list[Deferred[bool]], *, is_stored: bool) -> None:
    for each in waiting:
        if not each.called:
            each.callback(is_stored)


def open_audit_log(
    options: Mapping[str, Any], reactor: IReactor, seconds: Callable[[], float]
) -> AuditLog | None:
    """Return the audit log of the ``--audit-log-…`` options, or None without ``--audit-log-path``.

    :param seconds: returns the time of day, s since the epoch.
    :raise OptionError: the file cannot be written; the text names the cure.
    """
    path = options["audit-log-path"]
    if not path:
        return None
    thread = WorkerThread(reactor, "tower-audit")
    if path == STANDARD_OUTPUT:
        return AuditLog(reactor, thread, StandardOutput(standard_output()), "on standard output")
    file = RotatingFile(
        Path(path).absolute(),
        options["audit-log-maxsize"] * MEGABYTE or sys.maxsize,
        options["audit-log-maxbackup"],
        options["audit-log-maxage"],
        seconds,
    )
    _check("audit-log-path", file, path)
    return AuditLog(reactor, thread, file, path)


def open_access_log(path: str | None, reactor: IReactor, seconds: Callable[[], float]) -> AuditLog | None:
    """Return the log of ``--access-log``, which other programs rotate, or None without a *path*.

    :param seconds: returns the time of day, s since the epoch.
    :raise OptionError: the file cannot be written; the text names the cure.
    """
    if not path:
        return None
    thread, kind = WorkerThread(reactor, "tower-access"), "access log"
    if path == STANDARD_OUTPUT:
        return AuditLog(reactor, thread, StandardOutput(standard_output()), "on standard output", kind)
    file = RotatingFile(Path(path).absolute(), sys.maxsize, 0, 0, seconds)
    _check("access-log", file, path)
    return AuditLog(reactor, thread, file, path, kind)


def check_log(option: str, path: str | None) -> None:
    """Check that the file *path* of *option* can be written, if it is a file.

    :raise OptionError: it cannot; names *option* and the cure.
    """
    if path and path != STANDARD_OUTPUT:
        _check(option, RotatingFile(Path(path).absolute(), sys.maxsize, 0, 0, time.time), path)


def _check(option: str, file: RotatingFile, path: str) -> None:
    """Check that *file* can be written.

    :raise OptionError: it cannot; names *option* and the cure.
    """
    try:
        file.check()
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise OptionError(
            option, path, f"cannot be written ({reason}): set a file in a directory that Tower owns"
        ) from e


class AccessLogCollector(Collector):
    """Prometheus metrics of the access log."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def collect(self) -> Iterable[Metric]:
        """Return the two counters."""
        yield counter("tower_access_log_lines_total", "Lines of the access log.", self._log.lines)
        text = "Lines of the access log that were lost because it was not written fast enough."
        yield counter("tower_access_log_lost_lines_total", text, self._log.lost)
