"""Tests of `tower.store.audit_log`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options
from tower.options.errors import OptionError
from tower.reactor.interfaces import IReactor
from tower.reactor.worker_thread import WorkerThread
from tower.store.audit_file import RotatingFile, StandardOutput
from tower.store.audit_log import (
    BATCH_DELAY,
    MUCH,
    QUEUE_LIMIT,
    RETRY_DELAY,
    STOP_TIMEOUT,
    WAIT_LIMIT,
    AccessLogCollector,
    AuditLog,
    open_access_log,
    open_audit_log,
)


class FakeFile:
    """A backend in memory."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write."""
        self.written.append(b"".join(pieces))

    def close(self) -> None:
        """Close."""
        self.closed = True


class FakeThread:
    """A thread whose work the test does."""

    def __init__(self) -> None:
        self.work: list[tuple[Deferred[Any], Any, tuple[Any, ...]]] = []
        self.started = self.stopped = False

    def defer(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Leave it to the test."""
        self.started = True
        done: Deferred[Any] = Deferred()
        self.work.append((done, function, arguments))
        return done

    def stop(self) -> None:
        """Stop."""
        self.stopped = True


class AuditLogTests(SynchronousTestCase):
    """The queue of lines."""

    def setUp(self) -> None:
        """Create a log, and a thread whose work the test does."""
        self.clock = Clock()
        self.file = FakeFile()
        self.thread = FakeThread()
        self.work = self.thread.work
        self.log = AuditLog(self.clock, cast(WorkerThread, self.thread), self.file, "audit.log")

    def do(self) -> None:
        """Do the next piece of the thread's work."""
        done, function, arguments = self.work.pop(0)
        done.callback(function(*arguments))

    def fail_to_do(self) -> None:
        """Do it badly."""
        self.work.pop(0)[0].errback(Failure(OSError(28, "No space left on device")))

    def test_together(self) -> None:
        """Lines are written soon, and those of one moment at once."""
        for line in (b"1\n", b"2\n"):
            self.log.put(line)
        self.assertEqual(self.work, [])
        self.clock.advance(BATCH_DELAY)
        self.do()
        self.assertEqual(self.file.written, [b"1\n2\n"])
        self.clock.advance(60)
        self.assertEqual(self.work, [])

    def test_much(self) -> None:
        """Many bytes are written at once, also after a write that took time."""
        piece = b"x" * (MUCH // 2 - 1) + b"\n"
        self.log.put(piece)
        self.clock.advance(0)
        self.assertEqual(self.work, [])
        self.log.put(piece)
        self.clock.advance(0)
        self.log.put(piece * 2)
        self.do()
        self.clock.advance(0)
        self.do()
        self.assertEqual(self.file.written, [piece * 2] * 2)

    def test_hasten(self) -> None:
        """Lines that have waited before are written at once; after a failure, they wait nevertheless."""
        self.log.hasten()
        self.log.put(b"1\n")
        self.log.hasten()
        self.clock.advance(0)
        self.fail_to_do()
        self.log.hasten()
        self.clock.advance(0)
        self.assertEqual(self.work, [])
        self.clock.advance(RETRY_DELAY)
        self.do()
        self.assertEqual(self.file.written, [b"1\n"])
        self.flushLoggedErrors()

    def test_slow(self) -> None:
        """While the disk is slow lines wait, and nothing else does: one piece of work at a time."""
        self.log.put(b"1\n")
        self.clock.advance(BATCH_DELAY)
        self.log.put(b"2\n")
        self.clock.advance(60)
        self.assertEqual(len(self.work), 1)
        self.do()
        self.clock.advance(BATCH_DELAY)
        self.do()
        self.assertEqual(self.file.written, [b"1\n", b"2\n"])

    def test_full(self) -> None:
        """Lines that a full disk rejects are retried in order, and none is written twice."""
        self.log.put(b"1\n")
        self.clock.advance(BATCH_DELAY)
        self.log.put(b"2\n")
        self.fail_to_do()
        self.log.put(b"3\n")
        self.clock.advance(RETRY_DELAY)
        self.fail_to_do()
        self.clock.advance(RETRY_DELAY)
        self.do()
        self.assertEqual(self.file.written, [b"1\n2\n3\n"])
        self.assertEqual((self.log.lines, self.log.lost), (3, 0))

    def test_bounded(self) -> None:
        """If the disk is full for long, lines beyond the limit are dropped and counted."""
        line = b"x" * (QUEUE_LIMIT // 4 - 1) + b"\n"
        self.log.put(line)
        self.clock.advance(BATCH_DELAY)
        for _ in range(5):
            self.log.put(line)
        self.assertEqual((self.log.lines, self.log.lost), (6, 2))
        self.fail_to_do()
        self.log.put(line)
        self.assertEqual(self.log.lost, 3)
        self.clock.advance(RETRY_DELAY)
        self.do()
        self.assertEqual(self.file.written, [line * 4])
        self.log.put(line)
        self.assertEqual(self.log.lost, 3)

    def test_too_slow(self) -> None:
        """Lines that are lost because a write takes long are logged at once, then once a minute."""
        line = b"x" * (QUEUE_LIMIT // 2 - 1) + b"\n"
        with capturedLogs() as events:
            self.log.put(line)
            self.clock.advance(BATCH_DELAY)  # this write does not end
            for number in range(62):
                self.log.put(line)
                self.clock.advance(number > 0)
        texts = [formatEvent(event) for event in events]
        expected = "audit log audit.log: lines lost so far: {}; the disk or reader is too slow"
        self.assertEqual(texts, [expected.format(1), expected.format(61)])

    def test_counters(self) -> None:
        """The metrics of the access log have the numbers of queued and lost lines."""
        registry = CollectorRegistry()
        registry.register(AccessLogCollector(self.log))
        self.log.put(b"1\n")
        self.log.lost = 7
        self.assertEqual(registry.get_sample_value("tower_access_log_lines_total"), 1)
        self.assertEqual(registry.get_sample_value("tower_access_log_lost_lines_total"), 7)

    def test_flush(self) -> None:
        """A line is written at once, and the result is whether it is in the file."""
        self.assertTrue(self.successResultOf(self.log.flush()))
        self.log.put(b"1\n")
        first = self.log.flush()
        self.clock.advance(0)
        self.log.put(b"2\n")
        second = self.log.flush()
        self.assertNoResult(first)
        self.do()
        self.assertTrue(self.successResultOf(first))
        self.assertNoResult(second)
        self.clock.advance(0)
        self.do()
        self.assertTrue(self.successResultOf(second))
        self.assertEqual(self.file.written, [b"1\n", b"2\n"])

    def test_flush_failing(self) -> None:
        """While the file cannot be written no request waits, and the lines are written later."""
        self.log.put(b"1\n")
        first = self.log.flush()
        self.clock.advance(0)
        self.log.put(b"2\n")
        second = self.log.flush()
        self.fail_to_do()
        self.assertEqual([self.successResultOf(each) for each in (first, second)], [False, False])
        self.assertFalse(self.successResultOf(self.log.flush()))
        self.clock.advance(RETRY_DELAY)
        self.do()
        self.assertEqual(self.file.written, [b"1\n2\n"])
        self.assertTrue(self.successResultOf(self.log.flush()))

    def test_flush_hanging(self) -> None:
        """A disk that hangs delays a few requests for a limited time, and no later ones."""
        self.log.put(b"1\n")
        first = self.log.flush()
        self.clock.advance(0)
        with capturedLogs() as events:
            self.clock.advance(WAIT_LIMIT)
        self.assertFalse(self.successResultOf(first))
        self.assertIn("not written within 5 s", formatEvent(events[0]) or "")
        self.log.put(b"2\n")
        self.assertFalse(self.successResultOf(self.log.flush()))
        self.do()
        self.log.put(b"3\n")
        self.assertNoResult(self.log.flush())

    def test_flush_full(self) -> None:
        """A lost line is not in the file."""
        self.log.put(b"x" * (QUEUE_LIMIT + 1))
        self.assertFalse(self.successResultOf(self.log.flush()))

    def test_stop(self) -> None:
        """A stop writes all lines, also those queued meanwhile, then closes the file."""
        self.log.put(b"1\n")
        self.clock.advance(BATCH_DELAY)
        self.log.put(b"2\n")
        stopped = Deferred.fromCoroutine(self.log.stop())
        self.do()
        self.do()
        self.do()
        self.successResultOf(stopped)
        self.assertEqual(self.file.written, [b"1\n", b"2\n"])
        self.assertTrue(self.file.closed and self.thread.stopped)
        self.log.put(b"3\n")
        self.clock.advance(60)
        self.assertEqual((self.work, self.log.lost), ([], 1))

    def test_stop_unused(self) -> None:
        """A log into which nothing was put stops at once."""
        self.successResultOf(Deferred.fromCoroutine(self.log.stop()))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertFalse(self.thread.started)

    def test_stop_with_a_disk_that_hangs(self) -> None:
        """A stop does not wait for ever."""
        self.log.put(b"1\n")
        self.clock.advance(BATCH_DELAY)
        stopped = Deferred.fromCoroutine(self.log.stop())
        for _ in range(2):
            self.clock.advance(STOP_TIMEOUT)
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class OptionsTests(SynchronousTestCase):
    """The options of ``tower-proxy``."""

    def opened(self, *arguments: str) -> Any:
        """Return what these options make."""
        options = Options({})
        options.parse(list(arguments))
        return open_audit_log(options, cast(IReactor, Clock()), lambda: 0.0)

    def test_none(self) -> None:
        """There is none unless a path is given."""
        self.assertIsNone(self.opened())
        self.assertIsNone(self.opened("--audit-log-maxage=3"))

    def test_standard_output(self) -> None:
        """A minus sign is the standard output."""
        self.assertIsInstance(self.opened("--audit-log-path=-")._file, StandardOutput)

    def test_access_log(self) -> None:
        """The access log is not rotated by size; an invalid path ends the start."""
        reactor = cast(IReactor, Clock())
        self.assertIsNone(open_access_log(None, reactor, lambda: 0.0))
        log: Any = open_access_log("-", reactor, lambda: 0.0)
        self.assertIsInstance(log._file, StandardOutput)
        path = Path(self.mktemp())
        log = open_access_log(str(path), reactor, lambda: 0.0)
        self.assertEqual((log._file._size_limit, log._kind), (sys.maxsize, "access log"))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        with self.assertRaisesRegex(OptionError, "access-log.*not a directory"):
            open_access_log(str(path / "x" / "y"), reactor, lambda: 0.0)

    def test_quirk_13_each_limit_is_its_own(self) -> None:
        """Age, number and size go where they belong."""
        path = self.mktemp()
        file: RotatingFile = self.opened(
            f"--audit-log-path={path}",
            *("--audit-log-maxage=3", "--audit-log-maxbackup=5", "--audit-log-maxsize=7"),
        )._file
        self.assertEqual((file._days, file._backups, file._size_limit), (3, 5, 7_000_000))
        only_backups: RotatingFile = self.opened(f"--audit-log-path={path}", "--audit-log-maxbackup=5")._file
        self.assertEqual((only_backups._days, only_backups._backups), (0, 5))

    def test_cannot_be_written(self) -> None:
        """An invalid path ends the start, with the cure."""
        path = Path(self.mktemp()) / "audit.log"
        error = self.assertRaises(OptionError, self.opened, f"--audit-log-path={path}")
        self.assertIn(f"--audit-log-path {path}", str(error).replace("'", "").replace("=", " "))
        self.assertIn("no such file or directory", str(error))
