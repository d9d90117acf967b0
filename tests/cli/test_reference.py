"""Tests of `docs/cli.md` and the tool that makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[2]


class ReferenceTests(SynchronousTestCase):
    """The reference of the ``tower`` command."""

    def test_is_current(self) -> None:
        """The page is what `tools/cli-reference` prints."""
        made = subprocess.run(
            [sys.executable, ROOT / "tools" / "cli-reference"], capture_output=True, check=True
        )
        self.assertIn(b"## tower cluster list", made.stdout)
        self.assertTrue(
            made.stdout == (ROOT / "docs" / "cli.md").read_bytes(),
            "run .venv/bin/python tools/cli-reference > docs/cli.md",
        )
