"""Tests for `tower.web.gateway.pipelining`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.http.requests import BadHead
from tower.web.gateway.pipelining import PIPELINED, Pipelined


class PipelinedTests(SynchronousTestCase):
    """Bytes that wait."""

    def test_take(self) -> None:
        """They are taken without a copy, and what was served before is dropped when more comes."""
        raw = b"served" + b"next"
        waiting = Pipelined(raw, 6)
        self.assertIs(waiting.take()[0], raw)
        self.assertEqual((waiting.take(), waiting.held), ((raw, 6), 10))
        for piece in (memoryview(b" and"), b" more"):
            waiting.add(piece)
        self.assertEqual((waiting.take(), waiting.held), ((b"next and more", 0), 13))

    def test_is_full(self) -> None:
        """A whole head's worth may wait; what was served does not count."""
        waiting = Pipelined(bytes(10 + PIPELINED), 10)
        self.assertFalse(waiting.is_full)
        waiting.add(b"x")
        self.assertTrue(waiting.is_full)

    def test_head(self) -> None:
        """A head is whole when its empty line is, in whatever pieces that comes."""
        head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        waiting = Pipelined(b"served" + head[:1], 6)
        whole = [waiting.add_to_head(head[at : at + 1]) for at in range(1, len(head))]
        self.assertEqual(whole, [False] * (len(head) - 2) + [True])
        self.assertEqual(waiting.take(), (head, 0))

    def test_bad_head(self) -> None:
        """One that can no longer become good is refused at once."""
        self.assertRaises(BadHead, Pipelined(b"GET / HTTP/1.1").add_to_head, b"\nHost: a")
        self.assertRaises(BadHead, Pipelined(b"GET /").add_to_head, b"x" * PIPELINED)
