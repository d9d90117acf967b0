"""Tests of the soak's criteria; the soak itself takes long and is run by hand."""

from __future__ import annotations

import hashlib
import sys
from contextlib import redirect_stdout
from io import StringIO
from unittest.mock import Mock

from twisted.trial.unittest import SynchronousTestCase

from tests.soak import __main__ as program
from tests.soak.content import digest, pieces
from tests.soak.growth import MIB, Samples, growth
from tower import BUILD


class GrowthTests(SynchronousTestCase):
    """Whether a program grows."""

    def test_flat(self) -> None:
        """A rise at the start, and ups and downs, are flat."""
        rising = list(range(25))
        self.assertEqual(growth([*rising, *[25] * 75]), 0)
        self.assertEqual(growth([*rising, *[30, 20, 25] * 25]), 0)

    def test_grown(self) -> None:
        """A steady rise is growth, and is named."""
        self.assertAlmostEqual(growth(list(range(100))), 50, delta=1)
        samples = Samples("proxy", [each * MIB // 5 for each in range(100)], list(range(100)))
        memory, files = samples.grown()
        self.assertIn("proxy has grown by 10.0 MiB", memory)
        self.assertIn("50 more files", files)
        self.assertEqual(Samples("agent", [40 * MIB] * 10, [20] * 10).grown(), [])


class ContentTests(SynchronousTestCase):
    """The bytes that go through."""

    def test_same_however_cut(self) -> None:
        """Bytes follow from offset and size; pieces do not matter."""
        for offset, size in ((0, 0), (5, 1), (1000, 3 * MIB), (2**30, 70_000)):
            whole = b"".join(pieces(offset, size))
            self.assertEqual(len(whole), size)
            self.assertEqual(whole, b"".join(pieces(offset, size, 777)))
            self.assertEqual(hashlib.sha256(whole).hexdigest(), digest(offset, size))
        self.assertNotEqual(digest(0, 100), digest(1, 100))


class ProgramTests(SynchronousTestCase):
    """``python -m tests.soak``."""

    def test_build(self) -> None:
        """The first line of the output names the seed and the build that is tested."""
        self.patch(sys, "argv", ["soak", "--seed", "7"])
        for name in ("Soak", "Path", "tempfile", "signal"):
            self.patch(program, name, Mock())
        self.patch(program, "watch_over", lambda *_: [])
        output = StringIO()
        with redirect_stdout(output):
            self.assertEqual(program.main(), 0)
        self.assertRegex(output.getvalue(), rf"\Aseed 7; .*\bTower {BUILD}, Python .*\n")
