"""The watchdog of the Makefile's runs of trial, with several kinds of hanging tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.programs import Program, wait_for

#: How long these tests may be at one thing, s: longer than a busy machine takes to import trial.
SILENCE = 20.0
PATIENCE = 10 * SILENCE

#: Starts a program that leaves its own children to themselves, then loops with the reactor in its hands.
SPINS = """
from twisted.trial.unittest import TestCase, SynchronousTestCase
import subprocess, time

def spin():
    while True:
        time.sleep(0.1)

class SpinTests(TestCase):
    timeout = 1

    def test_a(self):
        "Fails normally, before."
        self.fail("an ordinary failure")

    def test_b(self):
        "Hangs."
        subprocess.Popen(
            ["sh", "-c", "echo $$ >>pids; (setsid sh -c 'echo $$ >>pids; exec sleep 9000' &); sleep 9000"],
            start_new_session=True,
            cwd=FOLDER,
        )
        while not os.path.exists(FOLDER + "/pids") or len(open(FOLDER + "/pids").readlines()) < 2:
            pass
        spin()

    def test_c(self):
        "Runs nevertheless."

class ThenTests(SynchronousTestCase):
    def test_d(self):
        "Too."
    test_d.skip = "not today"
"""

#: Takes as long as it announces.
LASTS = """
from twisted.trial.unittest import SynchronousTestCase, TestCase
import time

class LongTests(SynchronousTestCase):
    timeout = 900

    def test_j(self):
        "Succeeds."
        time.sleep(25)
"""

#: Sleeps in C, with Python's lock in its hands.
BLOCKS = """
from twisted.trial.unittest import SynchronousTestCase
import ctypes

class BlockTests(SynchronousTestCase):
    def test_e(self):
        "Hangs."
        ctypes.PyDLL(None).sleep(900)

    def test_f(self):
        "Runs nevertheless."
"""

#: Hangs before there is any test.
LOADS = """
import time
time.sleep(900)
"""

#: Leaves a thread behind that the process waits for.
STAYS = """
from twisted.trial.unittest import SynchronousTestCase
import threading, time

class StayTests(SynchronousTestCase):
    def test_i(self):
        "Succeeds."
        threading.Thread(target=time.sleep, args=(900,)).start()
"""

#: Ends the process.
DIES = """
from twisted.trial.unittest import SynchronousTestCase

class DieTests(SynchronousTestCase):
    def test_g(self):
        "Dies."
        os.kill(os.getpid(), 9)

    def test_h(self):
        "Runs nevertheless."
"""


class WatchdogTests(SynchronousTestCase):
    """See `tests.watchdog`."""

    def setUp(self) -> None:
        """Make a folder with tests."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-watchdog-"))
        self.addCleanup(shutil.rmtree, self.folder)
        modules = {
            "spins": SPINS,
            "blocks": BLOCKS,
            "loads": LOADS,
            "dies": DIES,
            "stays": STAYS,
            "lasts": LASTS,
        }
        for name, text in modules.items():
            begin = f"import os\nFOLDER = {str(self.folder)!r}\n"
            (self.folder / f"{name}.py").write_text(begin + text)

    def watch(self, *arguments: str, silence: float = SILENCE) -> Program:
        """Return a watchdog that was started."""
        argv = [sys.executable, "-m", "tests.watchdog", f"--silence={silence:g}", *arguments]
        program = Program("watchdog", argv, self.folder, {"PYTHONWARNINGS": "always::ResourceWarning"})
        self.addCleanup(program.kill)
        program.start()
        return program

    def counted(self, output: str) -> dict[str, int]:
        """Return what `.ci/run` counts."""
        counts: dict[str, int] = {}
        for line in re.findall(r"^(?:PASSED|FAILED) \((.*)\)$", output, re.MULTILINE):
            for part in line.split(", "):
                kind, _, number = part.partition("=")
                counts[kind] = counts.get(kind, 0) + int(number)
        return counts

    def assert_ended(self) -> None:
        """Check that no program is left that the tests started."""
        pids = [int(line) for line in (self.folder / "pids").read_text().split()]
        self.assertEqual(len(pids), 2)
        for pid in pids:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_announced(self) -> None:
        """A synchronous test may take the time that it announces, which is longer than the limit."""
        program = self.watch("lasts")
        self.assertEqual(program.wait(PATIENCE), 0, program.output())
        self.assertEqual(self.counted(program.output()), {"successes": 1}, program.output())

    def test_hangs(self) -> None:
        """A test that hangs or dies is named and ended with its processes; all others run and are counted."""
        program = self.watch("spins", "blocks", "loads", "dies")
        self.assertEqual(program.wait(PATIENCE), 1)
        output = program.output()
        for name, why, place in (
            ("spins.SpinTests.test_b", f"no sign of life for {SILENCE:g} s", "in spin"),
            ("blocks.BlockTests.test_e", f"no sign of life for {SILENCE:g} s", "in test_e"),
            ("loads", f"no sign of life for {SILENCE:g} s", "in <module>"),
            ("dies.DieTests.test_g", "the process of the tests ended, signal 9", ""),
        ):
            self.assertIn(f"\n*** {name}: {why}\n", output)
            self.assertIn(f"[ERROR]\n{why}\n{name}\n", output)
            if place:
                module = name.partition(".")[0]
                self.assertRegex(output, rf'File ".*/{module}\.py", line [0-9]+ {place}\n')
        for name in ("test_c", "test_f", "test_h"):
            self.assertRegex(output, rf"{name} \.\.\. +\[OK\]")
        self.assertEqual(output.count("FailTest: an ordinary failure"), 1)
        self.assertEqual(self.counted(output), {"failures": 1, "errors": 4, "successes": 3, "skips": 1})
        self.assert_ended()

    def test_group(self) -> None:
        """The begin and the end of a group are printed, but not the end of one that is ended by a signal."""
        program = self.watch("--group=some", "dies")
        self.assertEqual(program.wait(PATIENCE), 1)
        lines = program.output().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("group some begins", "group some ends"))
        program = self.watch("--group=other", "blocks")
        wait_for("a test", lambda: "group other begins" in program.output() and "test_e" in program.output())
        os.kill(program.pid, signal.SIGTERM)
        self.assertEqual(program.wait(PATIENCE), -signal.SIGTERM)
        self.assertNotIn("group other ends", program.output())

    def test_never_ends(self) -> None:
        """A process that stays when its tests are over is ended; they are counted once."""
        program = self.watch("stays")
        self.assertEqual(program.wait(PATIENCE), 1)
        output = program.output()
        self.assertIn(f"\n*** the end of the process: no sign of life for {SILENCE:g} s\n", output)
        self.assertEqual(self.counted(output), {"errors": 1, "successes": 1})

    def test_time_is_over(self) -> None:
        """A run that takes too long in total is ended, and the number of missing tests is printed."""
        program = self.watch(f"--limit={SILENCE:g}", "spins", silence=10 * SILENCE)
        self.assertEqual(program.wait(PATIENCE), 1)
        output = program.output()
        self.assertIn(f"*** spins.SpinTests.test_b: the time of this run, {SILENCE:g} s, is over\n", output)
        self.assertIn("\nnot run: 2\n", output)
        self.assertEqual(self.counted(output), {"failures": 1, "errors": 1})
        self.assert_ended()

    def test_interrupted(self) -> None:
        """Nothing goes on when the watchdog itself is asked to end."""
        program = self.watch("spins", silence=10 * SILENCE)
        wait_for("the test", lambda: (self.folder / "pids").exists() and "test_b" in program.output())
        wait_for("its programs", lambda: len((self.folder / "pids").read_text().split()) == 2)
        program.signal(signal.SIGTERM)
        self.assertEqual(program.wait(PATIENCE), -signal.SIGTERM)
        self.assert_ended()

    def test_passed(self) -> None:
        """If nothing hangs, nothing is different; no file is left open."""
        program = self.watch("spins.ThenTests", "blocks.BlockTests.test_f")
        self.assertEqual(program.wait(PATIENCE), 0)
        self.assertTrue(program.output().endswith("\nPASSED (skips=1, successes=1)\n"))
