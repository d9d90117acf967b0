"""The closing lines of ``.ci/run``, with a ``make`` that prints a log."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.programs import run

ROOT = Path(__file__).resolve().parents[2]

FINISHED = """\
group slow-door begins
===============================================================================
[FAIL]
Traceback (most recent call last):
tests.integration.test_door.DoorTests.test_a
-------------------------------------------------------------------------------
Ran 4 tests in 1.0s

FAILED (skips=1, failures=1, successes=2)
group slow-door ends
"""
KILLED = """\
group aside begins
    test_b ...                                                             [OK]
make[1]: *** [Makefile:100: aside] Killed
"""
PASSED = """\
group slow-host begins
PASSED (successes=5)
group slow-host ends
"""


class ClosingLineTests(SynchronousTestCase):
    """Runs the script; it installs nothing, because another ``id`` returns that this user is not root."""

    def setUp(self) -> None:
        """Copy the script."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-ci-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/run", self.folder / ".ci/run")
        self.program("id", "echo 1000")

    def program(self, name: str, line: str) -> None:
        """Write a program that precedes those of the machine."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o700)

    def closing(self, log: str, code: int) -> tuple[int, list[str]]:
        """Return the exit code for a log, and the lines after it."""
        (self.folder / "log").write_text(log)
        self.program("make", f"cat '{self.folder}/log'; exit {code}")
        path = f"{self.folder}:{os.environ['PATH']}"
        done = run([str(self.folder / ".ci/run")], environment={"PATH": path}, folder=self.folder)
        output = done.stdout.decode()
        self.assertTrue(output.startswith(log), output)
        return done.returncode, output.removeprefix(log).splitlines()

    def test_passed(self) -> None:
        """The last line has the number of tests that passed."""
        self.assertEqual(self.closing(PASSED, 0), (0, ["0 skipped", "5 passed, 0 failed"]))

    def test_failed(self) -> None:
        """Failed tests are named and counted."""
        lines = ["failed: tests.integration.test_door.DoorTests.test_a", "1 skipped", "7 passed, 1 failed"]
        self.assertEqual(self.closing(FINISHED + PASSED, 2), (1, lines))

    def test_killed(self) -> None:
        """A group of tests that was killed is named, and counts as a failure, also if make does not fail."""
        lines = ["failed: aside (ended without a result)", "0 skipped", "5 passed, 1 failed"]
        for log in (KILLED + PASSED, PASSED + KILLED):
            for code in (0, 2):
                self.assertEqual(self.closing(log, code), (1, lines))

    def test_other_failure(self) -> None:
        """A failure without a test counts as one."""
        self.assertEqual(self.closing(PASSED, 2), (1, ["0 skipped", "5 passed, 1 failed"]))
