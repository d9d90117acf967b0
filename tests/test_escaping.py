"""Tests for `tower.escaping`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.escaping import PEER_TEXT_LIMIT, escaped, json_text, quoted, readable_json, reported, shortened

#: Characters that control terminals, end a line for some readers, or turn or hide text.
NASTY = (
    "\x00\t\n\x0b\x0c\r\x1b\x1c\x7f\x80\x85\x9b\x9f\xa0\xad"
    "\u200b\u2028\u2029\u202e\u2066\ufeff\ud800\U000e0001"
)

TEXTS = st.text(st.characters() | st.sampled_from(NASTY))


class EscapingTests(SynchronousTestCase):
    """One text."""

    def test_escaped(self) -> None:
        """Characters that are not printable are escaped, all others stay."""
        self.assertEqual(escaped("Zürich 東京 \\n \U0001f600"), "Zürich 東京 \\n \U0001f600")
        self.assertEqual(escaped("a\x9b2J\n\r\x85\u2028\u202e\x7f"), r"a\x9b2J\n\r\x85\u2028\u202e\x7f")
        for character in NASTY:
            self.assertTrue(escaped(character).isascii(), ascii(character))

    def test_quoted(self) -> None:
        """A quotation is JSON, with marks and backslashes of its own escaped."""
        self.assertEqual(quoted('text "a\\b" ü\x9b\u2028\x7f'), r'"text \"a\\b\" ü\u009b\u2028\u007f"')
        self.assertEqual(quoted("\U000e0001"), r'"\udb40\udc01"')
        for character in NASTY:
            self.assertEqual(json.loads(quoted(character)), character)

    @given(TEXTS)
    def test_one_line(self, text: str) -> None:
        """Any text is printable in every form, and JSON keeps all of it."""
        for form in (escaped(text), quoted(text), quoted(text, 20), reported("x", text), json_text([text])):
            self.assertTrue(form.isprintable())
            self.assertEqual(len(form.splitlines()), 1 if form else 0)
        self.assertEqual(json.loads(quoted(text)), text)
        self.assertEqual(json.loads(json_text(text)), text)

    @given(TEXTS, st.integers(1, 40))
    def test_limits(self, text: str, limit: int) -> None:
        """The limit is for the shown characters, and no escape is cut."""
        cut = quoted(text, limit)
        self.assertLessEqual(len(cut), limit + 2)
        decoded = json.loads(cut)
        self.assertTrue(decoded == text or text.startswith(decoded.removesuffix("…")))
        self.assertLessEqual(len(shortened(text, limit)), limit)

    def test_reported(self) -> None:
        """A peer's text is attributed to it; bytes that are not text are harmless."""
        self.assertEqual(reported("the agent of alpha", "no"), 'the agent of alpha reports: "no"')
        self.assertEqual(reported("x", b"\xff\xc2\x9b"), 'x reports: "�\\u009b"')
        text = reported("x", "ü".encode() * 1000)
        self.assertEqual(len(text), len('x reports: ""') + PEER_TEXT_LIMIT)

    def test_readable(self) -> None:
        """Readable JSON keeps every script and its indentation."""
        value: dict[str, Any] = {"a": ["ü", "\u2028\x9b\x7f", {"b\u202e": 1}]}
        text = readable_json(value)
        self.assertEqual(json.loads(text), value)
        self.assertIn('\n        "ü",\n', text)
        self.assertTrue(text.replace("\n", "").isprintable())
