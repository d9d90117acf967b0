"""Tests for `tower.cli.output`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.cli import output

ANSWER = {
    "kind": "Table",
    "columnDefinitions": [
        {"name": "Name", "priority": 0},
        {"name": "Last seen", "priority": 1},
        {"name": "On"},
    ],
    "rows": [{"cells": ["alpha", "now", True]}, {"cells": ["b", None, False]}],
}


class OutputTests(SynchronousTestCase):
    """Tables and structured output."""

    def test_table(self) -> None:
        """Columns are aligned; those of lower priority appear only in `wide`."""
        self.assertEqual(output.table(ANSWER), "NAME    ON\nalpha   true\nb       false")
        self.assertEqual(
            output.table(ANSWER, wide=True),
            "NAME    LAST SEEN   ON\nalpha   now         true\nb       <none>      false",
        )

    def test_empty(self) -> None:
        """A table without rows is a sentence."""
        self.assertEqual(output.table({**ANSWER, "rows": []}, empty="nothing"), "nothing")

    def test_pairs(self) -> None:
        """Values are aligned."""
        self.assertEqual(output.pairs([("A", 1), ("Long", "")]), "A:     1\nLong:  <none>")

    def test_terminals(self) -> None:
        """Control characters are escaped in all output."""
        self.assertEqual(output.pairs([("A", "\x1b[31mred\x07\u00fc")]), "A:  \\x1b[31mred\\x07\u00fc")
        self.assertNotIn("\x1b", output.columns(("A",), [("\x1b]0;x",)]))

    def test_structured(self) -> None:
        """YAML and JSON keep the order and non-ASCII text."""
        value = {"b": "ü", "a": 1}
        self.assertEqual(output.as_yaml(value), "b: ü\na: 1")
        self.assertEqual(output.as_json(value), '{\n    "b": "ü",\n    "a": 1\n}')
