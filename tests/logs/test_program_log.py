"""The log of a program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from twisted.logger import Logger
from twisted.python.logfile import LogFile
from twisted.trial.unittest import SynchronousTestCase

from tower.logs import program_log as program_log_module
from tower.logs.levels import Levels
from tower.logs.program_log import ProgramLog, twistd_output


class ProgramLogTests(SynchronousTestCase):
    """Destination, format and levels, and their reload."""

    def test_reload(self) -> None:
        """A reload opens the renamed file again, and reads the levels again."""
        path, levels = Path(self.mktemp()), Path(self.mktemp())
        program_log = ProgramLog(path, "text", Levels(), levels)
        log = Logger(namespace="tower.v2.x", observer=program_log)
        log.debug("not seen")
        log.info("one")
        program_log.flush()
        renamed = path.rename(path.with_suffix(".1"))
        levels.write_text("v=4")
        program_log.reload()
        log.debug("two")
        levels.unlink()
        program_log.reload()
        log.debug("not seen either")
        log.info("three")
        program_log.flush()
        texts = [line.partition("v2: ")[2] for line in path.read_text().splitlines()]
        self.assertEqual(texts, ["two", "three"])
        self.assertIn("one", renamed.read_text())

    def test_wrong_levels(self) -> None:
        """Levels that cannot be read change nothing at a reload, and are an error at the start."""
        path, levels = Path(self.mktemp()), Path(self.mktemp())
        program_log = ProgramLog(path, "text", Levels(4), levels)
        levels.write_text("v=much")
        self.assertRaises(ValueError, program_log.reload)
        Logger(namespace="tower.x", observer=program_log).debug("seen")
        program_log.flush()
        self.assertIn("seen", path.read_text())
        self.assertRaises(ValueError, ProgramLog, path, "text", Levels(), levels)

    def test_output(self) -> None:
        """The thread writes to a descriptor; a reader that stalls delays nothing and is known."""
        receiving, sending = os.pipe()
        self.addCleanup(os.close, sending)
        program_log = ProgramLog(None, "json", Levels(), output=sending)
        log = Logger(namespace="tower.x", observer=program_log)
        log.info("words")
        self.assertIn(b'"message": "words"', os.read(receiving, 1000))
        program_log.reload()
        program_log.flush()
        self.assertFalse(program_log.is_blocked)
        for _ in range(200):
            log.info("x" * 1000)  # more than a pipe holds
        self.patch(program_log_module, "BLOCKED", 0.0)
        self.assertTrue(program_log.is_blocked)
        os.close(receiving)

    def test_file_errors(self) -> None:
        """Errors of twistd's log file are ignored."""
        path = Path(self.mktemp()).absolute()
        path.parent.mkdir(exist_ok=True, parents=True)
        file = LogFile.fromFullPath(str(path))
        self.addCleanup(file.close)

        def fail(text: str) -> None:
            failed.append(text)
            raise OSError(28, "No space left on device")

        failed: list[str] = []
        self.patch(file, "write", fail)
        Logger(namespace="tower.x", observer=ProgramLog(None, "text", Levels(), output=file)).info("lost")
        self.assertEqual(len(failed), 1)

    def test_twistd_output(self) -> None:
        """The log is written where twistd's options point, and a reload opens it again."""
        self.assertEqual(twistd_output(None, nodaemon=True), 1)
        self.assertEqual(twistd_output("-", nodaemon=True), 1)
        path = Path(self.mktemp()).absolute()
        path.parent.mkdir(exist_ok=True, parents=True)
        file = twistd_output(str(path), nodaemon=True)
        assert isinstance(file, LogFile)
        self.addCleanup(file.close)
        program_log = ProgramLog(None, "text", Levels(), output=file)
        path.rename(path.with_suffix(".1"))
        program_log.reload()
        Logger(namespace="tower.x", observer=program_log).info("words")
        self.assertIn("words", path.read_text())

    def test_closed_output(self) -> None:
        """In a process without standard output, no other file gets the lines: they are dropped."""
        self.patch(sys, "__stdout__", None)
        descriptor = twistd_output(None, nodaemon=True)
        assert isinstance(descriptor, int)
        self.addCleanup(os.close, descriptor)
        self.assertEqual(os.readlink(f"/proc/self/fd/{descriptor}"), os.devnull)
