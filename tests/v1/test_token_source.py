"""Tests of `tower.v1.token_source`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tower.v1.token_source import TokenSource


class TokenSourceTests(SynchronousTestCase):
    """Tests of `TokenSource`."""

    def test_fixed(self) -> None:
        """A token that is from no file never changes."""
        source = TokenSource("one")
        self.assertEqual(source.read(), "one")
        self.assertNotIn("one", repr(source))

    def test_file(self) -> None:
        """The file is read each time; while it cannot be used, the last token stays, with one log line."""
        path = Path(self.mktemp())
        path.write_text("two\n")
        source = TokenSource("one", str(path))
        lines = logged_lines(self)
        self.assertEqual(source.read(), "two")
        path.unlink()
        self.assertEqual((source.read(), source.read()), ("two", "two"))
        (line,) = lines
        self.assertIn(f"{path} cannot be read", line)
        path.write_text("three\n")
        self.assertEqual(source.read(), "three")
        path.write_text("")
        self.assertEqual(source.read(), "three")
        self.assertEqual(len(lines), 2)
        self.assertNotIn("three", "".join(lines))
