"""Tests of tower.conch.transport.versions; test_secure has the refused lines as a connection sees them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.versions import OURS, take_version
from tower.errors import PeerError


class TakeVersionTests(SynchronousTestCase):
    """take_version."""

    def test_any_split(self) -> None:
        """The line is taken when its end has come, and what follows is left."""
        whole = OURS + b"\r\nrest"
        for size in range(len(whole)):
            unparsed = bytearray(whole[:size])
            line = take_version(unparsed, size, from_server=False)
            if size < len(OURS) + 2:
                self.assertIsNone(line)
            else:
                self.assertEqual((line, bytes(unparsed)), (OURS, whole[len(OURS) + 2 : size]))

    def test_longest(self) -> None:
        """255 bytes with CRLF are allowed, one more is not."""
        for size, good in ((245, True), (246, False)):
            unparsed = bytearray(b"SSH-2.0-" + b"x" * size + b"\r\n")
            if good:
                self.assertIsNotNone(take_version(unparsed, len(unparsed), from_server=True))
            else:
                with self.assertRaises(PeerError):
                    take_version(unparsed, len(unparsed), from_server=True)

    def test_preface(self) -> None:
        """What a server says before is taken off; a client may not say anything."""
        text = b"hello\nSSH is next\r\nSSH-2.0-x\r\n"
        self.assertEqual(take_version(bytearray(text), len(text), from_server=True), b"SSH-2.0-x")
        with self.assertRaises(PeerError):
            take_version(bytearray(text), len(text), from_server=False)
        with self.assertRaises(PeerError):
            take_version(bytearray(b"hello\n"), 4097, from_server=True)
