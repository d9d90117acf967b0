"""Tests of `tower.http.field_lines`."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.http.field_lines import field_lines, field_pairs

#: The same as one expression; nothing that guards anything should be one.
WHOLE = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)*\r\n")


class FieldLineTests(SynchronousTestCase):
    def test_lines(self) -> None:
        """Lines come without their ends, and without the empty one at the end."""
        self.assertEqual(field_lines(b"\r\n"), [])
        self.assertEqual(field_lines(b"A: b\r\nC:\r\n\r\n"), [b"A: b", b"C:"])

    def test_no_lines(self) -> None:
        """Other line ends, control characters, empty lines between and a missing end are found."""
        for block in (
            *(b"", b"A: b", b"A: b\r\n", b"A: b\n\n", b"A: b\r\n\n", b"A: b\n\r\n", b"A: b\r\r\n\r\n"),
            *(b"\r\nA: b\r\n\r\n", b"A: b\r\n\r\nC: d\r\n\r\n", b"A: b\r\n\r\n\r\n", b"\nA: b\r\n\r\n"),
            *(b"A: \0\r\n\r\n", b"A: \x7f\r\n\r\n", b"A: b\rC: d\nE: f\r\n\r\n", b"A\rB: c\n\r\n\r\n"),
        ):
            self.assertIsNone(field_lines(block), block)

    def test_pairs(self) -> None:
        """Names and values are split at the first separator."""
        self.assertEqual(field_pairs([b"A: b:c", b"D:"]), [[b"A", b" b:c"], [b"D", b""]])
        self.assertEqual(field_pairs([b"A: b: c"], b": "), [[b"A", b"b: c"]])

    def test_no_pairs(self) -> None:
        """A line without name or separator, or with another character in the name, is not a field."""
        for line in (b"A", b":", b": b", b"A : b", b" A: b", b"\tA: b", b"A\xff: b", b"(A): b", b"A,B: c"):
            self.assertIsNone(field_pairs([b"C: d", line]), line)
        self.assertIsNone(field_pairs([b"A:b"], b": "))

    @given(
        st.lists(
            st.sampled_from([b"A", b"b", b":", b" ", b"\r\n", b"\r", b"\n", b"\t", b"\0", b"\xff", b"/"])
        )
    )
    def test_one_expression(self, pieces: list[bytes]) -> None:
        """The accepted lines are those of RFC 9112's grammar."""
        block = b"".join(pieces) + b"\r\n\r\n"
        lines = field_lines(block)
        taken = lines is not None and field_pairs(lines) is not None
        self.assertEqual(taken, WHOLE.fullmatch(block) is not None)
