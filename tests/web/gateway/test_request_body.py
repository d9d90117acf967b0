"""Tests for `tower.web.gateway.request_body`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.http.bodies import CHUNKED, BadBody
from tower.net.pipes import Buffer
from tower.web.gateway.request_body import RequestBody


class FollowTests(SynchronousTestCase):
    """The end of a body."""

    def test_sized(self) -> None:
        """A body of known length ends there, whatever the fragmentation."""
        self.assertEqual(RequestBody(3).follow(b"head" + b"abc" + b"next", 4), 7)
        self.assertEqual(RequestBody(3).follow(b"headabc", 4), 7)
        body = RequestBody(5)
        self.assertEqual([body.follow(piece) for piece in (b"", b"ab", b"cd", b"eGET")], [-1, -1, -1, 1])

    def test_chunked(self) -> None:
        """A chunked body ends after its last chunk."""
        body = RequestBody(CHUNKED)
        self.assertEqual([body.follow(b"head3\r\nab", 4), body.follow(b"c\r\n0\r\n\r\nGET")], [-1, 8])

    def test_broken(self) -> None:
        """Invalid chunks are rejected."""
        self.assertRaises(BadBody, RequestBody(CHUNKED).follow, b"x\r\n")


class TakerTests(SynchronousTestCase):
    """The taker of a body."""

    def test_blocked(self) -> None:
        """Without a taker, or with a full one, the body is blocked."""
        taken: list[Buffer] = []
        roomy = True

        def take(data: Buffer) -> bool:
            taken.append(data)
            return roomy

        body = RequestBody(10)
        self.assertTrue(body.blocked)
        body.give_to(take, roomy=True)
        self.assertFalse(body.blocked)
        self.assertTrue(body.pass_on(b"a"))
        self.assertFalse(body.drained())
        roomy = False
        self.assertFalse(body.pass_on(b"b"))
        self.assertTrue(body.blocked)
        self.assertTrue(body.drained())
        self.assertFalse(body.blocked)
        self.assertEqual(taken, [b"a", b"b"])
        body.give_to(take, roomy=False)
        self.assertTrue(body.blocked)
        body.give_to(None, roomy=True)
        self.assertTrue(body.blocked)
