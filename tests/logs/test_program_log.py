"""The log of a program."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

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

    def test_stream(self) -> None:
        """Twistd's stream gets the lines; its errors are ignored."""
        out = io.StringIO()
        program_log = ProgramLog(None, "json", Levels(), stream=out)
        log = Logger(namespace="tower.x", observer=program_log)
        log.info("words")
        self.assertIn('"message": "words"', out.getvalue())
        program_log.reload()
        program_log.flush()
        out.close()
        log.info("lost")

    def test_twistd_output(self) -> None:
        """The log is written where twistd's options point, and a reload opens it again."""
        self.assertIs(twistd_output(None, nodaemon=True), sys.stdout)
        self.assertIs(twistd_output("-", nodaemon=True), sys.stdout)
        path = Path(self.mktemp()).absolute()
        path.parent.mkdir(exist_ok=True, parents=True)
        file = twistd_output(str(path), nodaemon=True)
        self.addCleanup(file.close)
        program_log = ProgramLog(None, "text", Levels(), stream=file)
        path.rename(path.with_suffix(".1"))
        program_log.reload()
        Logger(namespace="tower.x", observer=program_log).info("words")
        self.assertIn("words", path.read_text())
