"""Tests of `tools/wheels/native_requirements.py`: the errors of a machine that cannot compile Tower."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]
CURE = "on Debian and Ubuntu, apt-get install gcc python3-dev; or install Tower without TOWER_NATIVE"


class NativeRequirementsTests(SynchronousTestCase):
    """The requirements on a machine whose C compiler and headers are empty files."""

    def setUp(self) -> None:
        """Make the folder of programs, and Python's headers."""
        self.programs = Path(self.mktemp()).absolute()
        self.headers = Path(self.mktemp()).absolute()
        for file in (self.programs / "cc", self.headers / "Python.h"):
            file.parent.mkdir()
            file.touch(0o755)

    def ask(self, function: str, **environment: str) -> tuple[int, str]:
        """Call a function of the module in a new process; return the exit code and the output."""
        code = (
            f"import sysconfig; sysconfig.get_path = lambda name: {str(self.headers)!r}\n"
            f"import native_requirements; print(native_requirements.{function}())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={
                "PATH": str(self.programs),
                "PYTHONPATH": str(ROOT / "tools" / "wheels"),
                "CC": "cc -pthread",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout.decode().strip()

    def test_choice(self) -> None:
        """Only TOWER_NATIVE=1 selects the compilation; a value that means nothing ends the build."""
        self.assertEqual(self.ask("is_wanted"), (0, "False"))
        for value, wanted in (("", "False"), ("0", "False"), ("1", "True")):
            self.assertEqual(self.ask("is_wanted", TOWER_NATIVE=value), (0, wanted))
        self.assertEqual(
            self.ask("is_wanted", TOWER_NATIVE="yes"), (1, "TOWER_NATIVE=yes: must be 0, 1 or empty")
        )

    def test_pinned(self) -> None:
        """With a compiler and headers, the packages of both lock files are required, each in one version."""
        code, output = self.ask("requirements")
        self.assertEqual(code, 0, output)
        for name in ("mypy==", "mypy-zope==", "Twisted==", "librt=="):
            self.assertIn(f"'{name}", output)
        lines = output.strip("[]").split(", ")
        self.assertEqual([line for line in lines if line.count("==") != 1], [])

    def test_no_compiler(self) -> None:
        """Without a compiler, the build ends with its name and the cure, before anything is downloaded."""
        for command in ("cc -pthread", "clang-99"):
            (self.programs / "cc").unlink(missing_ok=True)
            reason = f"TOWER_NATIVE=1: the C compiler '{command}' is not installed: {CURE}"
            for function in ("check_compiler", "requirements"):
                self.assertEqual(self.ask(function, CC=command), (1, reason))

    def test_no_headers(self) -> None:
        """Without Python's headers, the build ends with their path and the cure."""
        header = self.headers / "Python.h"
        header.unlink()
        self.assertEqual(self.ask("requirements"), (1, f"TOWER_NATIVE=1: {header} is not installed: {CURE}"))
