"""Tests of `tower.options.strict_yaml`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from yaml import YAMLError

from tower.options.strict_yaml import load_strictly


class StrictYAMLTests(SynchronousTestCase):
    """Values of YAML."""

    def test_values(self) -> None:
        """Values that JSON has; a date is a text."""
        self.assertEqual(
            load_strictly(b"a: [1, x, true, null]\nb: {c: 2026-01-01}"),
            {"a": [1, "x", True, None], "b": {"c": "2026-01-01"}},
        )

    def test_rejected(self) -> None:
        """Keys given twice, keys that are not texts, aliases, tags and several documents."""
        for text in (
            b"a: 1\na: 2",
            b"x: {a: 1, 'a': 2}",
            b"{? [a] : 1}",
            b"a: &a 1\nb: *a",
            b"!!python/object:os.system x",
            b"a: 1\n---\nb: 2",
        ):
            self.assertRaises(YAMLError, load_strictly, text)
