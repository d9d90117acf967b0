"""The thread that writes log lines."""

from __future__ import annotations

import os
import select
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.logs import writer as module
from tower.logs.writer import QUEUE_LIMIT, LogWriter


class LogWriterTests(SynchronousTestCase):
    """A log file, and destinations that fail."""

    def writer(self, path: Path | None) -> LogWriter:
        """Return a writer whose own entries end with a line end."""
        return LogWriter(path, lambda text: f"own: {text}\n")

    def piped(self) -> tuple[LogWriter, int]:
        """Return a writer to a pipe in place of standard error, and the pipe's other end.

        The ends stay open, as the writer's thread does not end.
        """
        receiving, sending = os.pipe()
        self.patch(module, "STDERR", sending)
        return self.writer(None), receiving

    def received(self, receiving: int, size: int, end: bytes = b"") -> bytes:
        """Return what was received: at least *size* B, up to *end*."""
        parts: list[bytes] = []
        while sum(map(len, parts)) < size or not b"".join(parts[-2:]).endswith(end):
            self.assertTrue(select.select([receiving], [], [], 5)[0], "nothing more came")
            parts.append(os.read(receiving, 1 << 20))
        return b"".join(parts)

    def test_file(self) -> None:
        """Lines are appended; the file is its owner's alone."""
        path = Path(self.mktemp())
        writer = self.writer(path)
        for text in ("one\n", "two ü\ud800\n"):
            writer.write(text)
        self.assertTrue(writer.flush(5))
        self.assertEqual(path.read_text(), "one\ntwo ü\\ud800\n")
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)

    def test_blocked(self) -> None:
        """The time that lines wait for a full pipe is known."""
        now = [100.0]
        receiving, sending = os.pipe()
        self.patch(module, "STDERR", sending)
        writer = LogWriter(None, lambda text: f"own: {text}\n", lambda: now[0])
        self.assertEqual(writer.blocked, 0)
        writer.write("one\n")
        self.assertEqual(self.received(receiving, 4), b"one\n")
        self.assertTrue(writer.flush(5))
        now[0] += 500
        size = 1 << 20  # more than the pipe holds
        writer.write("x" * size)
        now[0] += 60
        self.assertEqual(writer.blocked, 60)
        self.received(receiving, size)
        while writer.blocked:
            os.sched_yield()

    def test_reopen(self) -> None:
        """Lines before `reopen` go to the renamed file, later ones to a new file."""
        path = Path(self.mktemp())
        writer = self.writer(path)
        writer.write("old\n")
        writer.flush(5)
        renamed = path.rename(path.with_suffix(".1"))
        writer.write("late\n")
        writer.reopen()
        writer.write("new\n")
        self.assertTrue(writer.flush(5))
        self.assertEqual((renamed.read_text(), path.read_text()), ("old\nlate\n", "new\n"))

    def test_not_reopened(self) -> None:
        """If the file cannot be opened again, the old one is used, and a line in it has the cause."""
        folder = Path(self.mktemp())
        folder.mkdir()
        writer = self.writer(folder / "log")
        moved = folder.rename(folder.with_suffix(".moved"))
        writer.reopen()
        writer.write("line\n")
        self.assertTrue(writer.flush(5))
        first, last = (moved / "log").read_text().splitlines()
        self.assertIn("cannot open log file", first)
        self.assertEqual(last, "line")

    def test_no_file(self) -> None:
        """A path that cannot be opened, or names another kind of file, is an error at once."""
        self.assertRaises(OSError, self.writer, Path(self.mktemp()) / "none" / "log")
        pipe = Path(self.mktemp())
        os.mkfifo(pipe)
        self.assertRaises(OSError, self.writer, pipe)

    def test_full_disk(self) -> None:
        """Lines that a full disk refuses are counted; nothing is raised."""
        writer = self.writer(Path("/dev/full"))
        writer.write("lost\n")
        self.assertTrue(writer.flush(5))
        writer._path = path = Path(self.mktemp())
        writer.reopen()
        writer.write("line\n")
        self.assertTrue(writer.flush(5))
        first, last = path.read_text().splitlines()
        self.assertRegex(first, "^own: 1 log lines were lost: no space left on device$")
        self.assertEqual(last, "line")

    def test_closed_pipe(self) -> None:
        """A reader that ended the pipe loses lines only."""
        writer, receiving = self.piped()
        os.close(receiving)
        for _ in range(3):
            writer.write("lost\n")
            self.assertTrue(writer.flush(5))

    def test_blocked_pipe(self) -> None:
        """A reader that does not read delays nothing; the queue is limited, and later lines are counted."""
        writer, receiving = self.piped()
        line = "x" * 65535 + "\n"
        for _ in range(2 * QUEUE_LIMIT // len(line)):
            writer.write(line)
        self.assertFalse(writer.flush(0))
        self.assertLessEqual(writer._put - writer._taken, QUEUE_LIMIT)
        dropped = writer._dropped
        self.assertGreater(dropped, 0)
        received = self.received(receiving, writer._put - writer._taken)
        self.assertTrue(writer.flush(5))
        writer.write("last\n")
        received += self.received(receiving, 0, b"last\n")
        notice = f"own: {dropped} log lines were lost: they came faster"
        self.assertEqual(received.count(notice.encode()), 1)

    def test_not_blocking(self) -> None:
        """A pipe that another program made non-blocking gets every line."""
        writer, receiving = self.piped()
        os.set_blocking(module.STDERR, False)
        line = "x" * 65535 + "\n"
        for _ in range(10):
            writer.write(line)
        self.received(receiving, 10 * len(line))
        self.assertTrue(writer.flush(5))

    def test_fork(self) -> None:
        """A child process has its own thread and queue."""
        path = Path(self.mktemp())
        writer = self.writer(path)
        writer.write("parent\n")
        self.assertTrue(writer.flush(5))
        child = os.fork()
        if not child:
            writer.write("child\n")
            os._exit(0 if writer.flush(5) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(path.read_text(), "parent\nchild\n")
