"""Tests of tower.conch.transport.fields."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.fields import Malformed, MessageReader

MESSAGE = b"\0\0\0\3a,b\1\0\0\0\7\0\0\0\0rest"


class FieldsTests(SynchronousTestCase):
    """Fields."""

    def test_each_kind(self) -> None:
        """Every kind of field comes off the front in turn."""
        fields = MessageReader(MESSAGE)
        self.assertEqual(fields.names(), [b"a", b"b"])
        self.assertTrue(fields.boolean())
        self.assertEqual(fields.number(), 7)
        self.assertEqual(fields.names(), [])
        self.assertEqual(fields.before(), MESSAGE[:-4])
        self.assertEqual(fields.remaining(), b"rest")
        fields.end()

    def test_cut_short(self) -> None:
        """A message cut anywhere is malformed, never silently shorter."""
        for size in range(len(MESSAGE) - 4):
            fields = MessageReader(MESSAGE[:size])
            with self.assertRaises(Malformed):
                fields.names()
                fields.boolean()
                fields.number()
                fields.string()

    def test_a_length_beyond_the_message(self) -> None:
        """A string that claims four gigabytes is refused, not awaited."""
        with self.assertRaises(Malformed):
            MessageReader(b"\xff\xff\xff\xffabc").string()

    def test_too_long(self) -> None:
        """Remaining bytes are an error when the end is expected."""
        fields = MessageReader(b"ab")
        fields.skip(1)
        with self.assertRaises(Malformed):
            fields.end()
