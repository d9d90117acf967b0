"""Writes the audit log: lines are put here, and soon afterwards a thread adds them to the file.

A disk that is slow, full or gone holds up nobody: lines wait, up to `QUEUE_LIMIT`, and what comes after
that is lost, counted, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import Metric
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.options import OptionError
from tower.reactor.worker_thread import WorkerThread
from tower.store.audit_file import STANDARD_OUTPUT, AuditBackend, RotatingFile, StandardOutput

#: How long a line waits for others to be written with, s.
BATCH_DELAY = 0.1

#: How long to wait after lines could not be written, s.
RETRY_DELAY = 1.0

#: Most that waits for the disk, B.
QUEUE_LIMIT = 4 * 1024 * 1024

#: How long a stop waits for the disk, s.
STOP_TIMEOUT = 5.0

#: Names of kube-apiserver.
EVENTS = "apiserver_audit_event_total"
ERRORS = "apiserver_audit_error_total"


class Works(Protocol):
    """What is needed of `tower.reactor.worker_thread.WorkerThread`."""

    @property
    def started(self) -> bool:
        """Whether there is a thread."""

    def defer(self, function: Callable[..., None], *arguments: Any) -> Deferred[None]:
        """Have *function* called there; return its result."""

    def stop(self) -> None:
        """End the thread."""


class AuditLog:
    """:param thread: waits for the disk.
    :param file: where lines go.
    :param place: what people call it.
    :ivar lines: how many were put here.
    :ivar lost: how many of these there was no room for.
    """

    _log = Logger()

    def __init__(self, reactor: Any, thread: Works, file: AuditBackend, place: str) -> None:
        self._reactor = reactor
        self._thread = thread
        self._file = file
        self._place = place
        self._waiting: list[bytes] = []
        self._size = 0
        self._due: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        self._failing = self._over = False
        self.lines = self.lost = 0

    def put(self, line: bytes) -> None:
        """Write *line*, which ends with a line feed, soon."""
        self.lines += 1
        if self._over or self._size + len(line) > QUEUE_LIMIT:
            self.lost += 1
            return
        self._waiting.append(line)
        self._size += len(line)
        if self._due is None and self._writing is None:
            self._due = self._reactor.callLater(BATCH_DELAY, self._write)

    async def stop(self) -> None:
        """Write what waits, and close the file; give up on a disk that does not take it in time."""
        for _ in range(2):  # what is being written, and what has come since
            if self._due is not None:
                self._due.cancel()
                self._write()
            if self._writing is not None:
                writing: Deferred[Any] = Deferred()
                self._writing.chainDeferred(writing)
                writing.addTimeout(STOP_TIMEOUT, self._reactor)
                await DeferredList([writing], consumeErrors=True)
        self._over = True
        if self._due is not None:
            self._due.cancel()
        if self._waiting or self._writing is not None:
            self._log.error("the last lines of the audit log {place} are lost", place=self._place)
        if self._thread.started and self._writing is None:
            await self._thread.defer(self._file.close)
            self._thread.stop()

    def _write(self) -> None:
        """Have the thread write what waits."""
        self._due = None
        waiting, self._waiting = self._waiting, []
        self._writing = self._thread.defer(self._file.write, b"".join(waiting))
        self._writing.addCallbacks(self._written, self._not_written, errbackArgs=(waiting,))

    def _written(self, _: None) -> None:
        self._writing = None
        if self._failing:
            self._failing = False
            self._log.info(
                "the audit log {place} is written again; {lost} lines were lost so far",
                place=self._place,
                lost=self.lost,
            )
        self._size = sum(map(len, self._waiting))
        if self._waiting:
            self._due = self._reactor.callLater(BATCH_DELAY, self._write)

    def _not_written(self, failure: Failure, lines: list[bytes]) -> None:
        """Keep the lines, and try again."""
        self._writing = None
        self._waiting[:0] = lines
        if not self._failing:
            self._failing = True
            error = failure.value
            self._log.error(
                "Unable to write audit log: {place}, the error is: {error}; lines wait, up to {limit} MiB",
                place=self._place,
                error=getattr(error, "strerror", None) or error,
                limit=QUEUE_LIMIT >> 20,
            )
        self._due = self._reactor.callLater(RETRY_DELAY, self._write)


def open_audit_log(options: Mapping[str, Any], reactor: Any, seconds: Callable[[], float]) -> AuditLog | None:
    """Return what ``--audit-log-path`` and its companions say, or None.

    :param options: of ``tower-proxy``.
    :param seconds: the time of day, s since the epoch.
    :raise OptionError: the file cannot be written; names it, and the cure.
    """
    path = options["audit-log-path"]
    if not path:
        return None
    thread = WorkerThread(reactor, "tower-audit")
    if path == STANDARD_OUTPUT:
        return AuditLog(reactor, thread, StandardOutput(), "on standard output")
    file = RotatingFile(
        Path(path).absolute(),
        options["audit-log-maxsize"],
        options["audit-log-maxbackup"],
        options["audit-log-maxage"],
        seconds,
    )
    try:
        file.check()
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise OptionError(
            "audit-log-path",
            path,
            f"cannot be written ({reason}): name a file in a directory that is ours",
        ) from e
    return AuditLog(reactor, thread, file, path)


class AuditCollector(Collector):
    """What Prometheus is told of the audit log, under the names that kube-apiserver gave it."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def collect(self) -> Iterable[Metric]:
        """Return the two counters."""
        events = Metric(EVENTS, "Counter of audit events generated and sent to the audit backend.", "counter")
        errors = Metric(ERRORS, "Counter of audit events that failed to be audited properly.", "counter")
        events.add_sample(EVENTS, {}, self._log.lines)
        errors.add_sample(ERRORS, {"plugin": "log"}, self._log.lost)
        return events, errors
