"""Tests for `tower.web.gateway.pipelining`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.http.requests import BadHead
from tower.web.gateway.pipelining import PIPELINED, Pipelined


class PipelinedTests(SynchronousTestCase):
    """Waiting bytes."""

    def test_take(self) -> None:
        """They are taken without a copy, and served bytes are dropped when more arrive."""
        raw = b"served" + b"next"
        waiting = Pipelined(raw, 6)
        self.assertIs(waiting.take()[0], raw)
        self.assertEqual((waiting.take(), waiting.held), ((raw, 6), 10))
        for piece in (memoryview(b" and"), b" more"):
            waiting.add(piece)
        self.assertEqual((waiting.take(), waiting.held), ((b"next and more", 0), 13))

    def test_is_full(self) -> None:
        """The limit is one head, without the bytes that were served."""
        waiting = Pipelined(bytes(10 + PIPELINED), 10)
        self.assertFalse(waiting.is_full)
        waiting.add(b"x")
        self.assertTrue(waiting.is_full)

    def test_head(self) -> None:
        """A head is complete with its empty line, whatever the fragmentation."""
        head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        waiting = Pipelined(b"served" + head[:1], 6)
        whole = [waiting.add_to_head(head[at : at + 1]) for at in range(1, len(head))]
        self.assertEqual(whole, [False] * (len(head) - 2) + [True])
        self.assertEqual(waiting.take(), (head, 0))

    def test_bad_head(self) -> None:
        """A head that cannot become valid is rejected at once."""
        self.assertRaises(BadHead, Pipelined(b"GET / HTTP/1.1").add_to_head, b"\nHost: a")
        self.assertRaises(BadHead, Pipelined(b"GET /").add_to_head, b"x" * PIPELINED)
