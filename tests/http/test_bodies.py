"""Tests for `tower.http.bodies`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.http.bodies import CHUNK_LINE_LIMIT, TRAILER_LIMIT, BadBody, ChunkedBody


class ChunkedBodyTests(SynchronousTestCase):
    """Chunked framing."""

    def test_any_split(self) -> None:
        """The end is found wherever the stream was cut, and the payload too."""
        wire = b'3\r\nabc\r\nA;name="a;b"\r\n0123456789\r\n00\r\nX-Sum: 1\r\nY:\r\n\r\n'
        for first in range(len(wire)):
            for second in (first, min(first + 1, len(wire) - 1)):
                pieces: list[bytes] = []
                body = ChunkedBody(pieces)
                ends = [body.feed(part) for part in (wire[:first], wire[first:second]) if part]
                self.assertEqual(ends, [-1] * len(ends))
                rest = memoryview(wire + b"NEXT")[second:]
                self.assertEqual(body.feed(rest), len(wire) - second)
                self.assertEqual(b"".join(pieces), b"abc0123456789")

    def test_start(self) -> None:
        """Following may begin behind a head."""
        self.assertEqual(ChunkedBody().feed(b"HEAD0\r\n\r\nNEXT", 4), 9)

    @given(st.lists(st.binary(min_size=1, max_size=50), max_size=10), st.integers(1, 40))
    def test_whatever_was_written(self, chunks: list[bytes], step: int) -> None:
        """Written bodies are read, at any step size."""
        wire = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        pieces: list[bytes] = []
        body = ChunkedBody(pieces)
        ends = [body.feed(wire[i : i + step]) for i in range(0, len(wire), step)]
        self.assertEqual(ends[:-1], [-1] * (len(ends) - 1))
        self.assertGreater(ends[-1], 0)
        self.assertEqual(b"".join(pieces), b"".join(chunks))

    @given(st.lists(st.sampled_from([b"0", b"1", b"2;a", b"a", b":", b"\r\n", b"\r", b"\n"]), max_size=14))
    def test_whole_or_in_bytes(self, parts: list[bytes]) -> None:
        """Good or bad, a body that comes at once is taken as one that comes byte by byte."""
        wire = b"".join(parts)
        outcomes = []
        for step in (1, len(wire) or 1):
            pieces: list[bytes] = []
            body = ChunkedBody(pieces)
            position, end = 0, -1
            try:
                while position < len(wire) and end < 0:
                    end = body.feed(wire[position : position + step])
                    position += step if end < 0 else end
            except BadBody:
                outcomes.append("bad")
            else:
                outcomes.append(f"{end >= 0} at {position}: {b''.join(pieces)!r}")
        self.assertEqual(outcomes[0], outcomes[1])

    def test_refused(self) -> None:
        """Framing that two parsers could read differently is rejected."""
        for wire in (
            b"\r\n",
            b"x\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x1\r\n",
            b"1_0\r\n",
            b" 1\r\n",
            b"1\n",
            b"1\ra\r\n",
            b"1;a\nb\r\n",
            b"1;a\0\r\n",
            b"1 a\r\n",
            b"1 ;a\r\na\r\n0\r\n",
            b"1111111111111111\r\n",
            b"1\r\nab\r\n",
            b"1\r\na\n",
            b"1\r\na\r\r\n",
            b"0\r\nno colon\r\n",
            b"0\r\n folded: x\r\n",
            b"0\r\nA : b\r\n",
            b"0\r\nA: b\n\r\n",
            b"0\r\n\n",
            b"0\r\nContent-Length: 5\r\n",
            b"0\r\ntransfer-encoding: chunked\r\n",
            b"0\r\nImpersonate-User: root\r\n",
            b"0\r\nX-Remote-User: root\r\n",
            b"0\r\nAuthorization: x\r\n",
            b"0\r\nHost: x\r\n",
        ):
            with self.assertRaises(BadBody, msg=repr(wire)):
                ChunkedBody().feed(wire + b"\r\n\r\n")

    def test_limits(self) -> None:
        """Lines and trailers are bounded, complete or not."""
        for wire in (
            b"1" * (CHUNK_LINE_LIMIT + 1),
            b"1;" + b"a" * CHUNK_LINE_LIMIT + b"\r\n",
            b"0\r\n" + b"A: b\r\n" * (TRAILER_LIMIT // 6 + 1),
            b"0\r\nA: " + b"b" * TRAILER_LIMIT,
        ):
            with self.assertRaises(BadBody):
                ChunkedBody().feed(wire)
            body = ChunkedBody()
            with self.assertRaises(BadBody):
                for value in wire:
                    body.feed(bytes((value,)))
