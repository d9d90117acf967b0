"""The runner of a page's commands."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.guide import Guide


class GuideTests(SynchronousTestCase):
    """A page with one block."""

    def guide(self, *lines: str) -> Guide:
        """Return the page."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder)
        page = folder / "page.md"
        page.write_text("# Page\n\n## Block\n\n" + "".join(f"    {line}\n" for line in lines))
        return Guide(str(page), folder, {}, {})

    def test_output(self) -> None:
        """The outputs of a block are kept apart."""
        guide = self.guide("echo out", "echo error >&2")
        self.assertEqual((guide.run("Block"), guide.errors), ("out\n", "error\n"))

    def test_failure(self) -> None:
        """A block fails with any of its commands."""
        self.assertRaises(AssertionError, self.guide("false", "true").run, "Block")

    def test_negation(self) -> None:
        """A command with an exclamation mark must fail, also if others follow."""
        for command in ("! false", "! echo a | grep b", "! test a = \\\n      b"):
            self.assertEqual(self.guide(command, "echo then").run("Block"), "then\n")
        for command in ("! true", "! echo a | grep a", "! test a = \\\n      a"):
            for lines in ((command,), (command, "echo then")):
                self.assertRaises(AssertionError, self.guide(*lines).run, "Block")
