"""Tests for `tower.options.nearest`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.options.nearest import LONGEST, nearest_name


class NearestTests(SynchronousTestCase):
    """Suggestions for misspelt names."""

    def test_nearest(self) -> None:
        """The most similar name is found, and none if all differ."""
        names = ("port", "host", "secure-port")
        for word, expected in (("prot", "port"), ("secure-prt", "secure-port"), ("xyz", "")):
            self.assertEqual(nearest_name(word, names), expected)
        self.assertEqual(nearest_name("prt", names, 0.9), "")

    def test_long(self) -> None:
        """A long word has no nearest name: comparing it would take too long."""
        self.assertEqual(nearest_name("a" * LONGEST, ["a" * LONGEST]), "a" * LONGEST)
        self.assertEqual(nearest_name("a" * (LONGEST + 1), ["a" * (LONGEST + 1)]), "")
