"""Heads and bodies of HTTP, compared with h11 and httptools, which accept all that Tower accepts.

The fuzzer's comparisons; the inputs are constructed here, so that most of them are valid.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.http import check_chunks, check_head, check_policy, check_response
from tests.fuzz.streams import check_agent, check_answer, check_user

NAMES = st.sampled_from(
    ("Accept", "X-A", "content-type", "Cookie", "Connection", "Upgrade", "Expect", "TE", "Keep-Alive", "Via")
)
VALUES = st.one_of(
    st.sampled_from(("a/b", "close", "keep-alive", "Upgrade", "SPDY/3.1", "100-continue", "x,y;q=1", "")),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
    lambda pairs: "".join(f"{name}: {value}\r\n" for name, value in pairs).encode()
)
METHODS = st.sampled_from((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
TARGETS = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=30
).map(lambda text: b"/" + text.encode())
CHANCES = st.integers(0, 1 << 30).map(random.Random)


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    """Return a body in chunks."""
    chunks = draw(st.lists(st.binary(min_size=1, max_size=80), max_size=5))
    extension = draw(st.sampled_from((b"", b";a", b";a=b", b' ;a="b;c"', b" ")))
    trailers = draw(st.sampled_from((b"", b"X-Sum: 1\r\n", b"A:\r\nB: c\r\n")))
    wire = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    return wire + b"0\r\n" + trailers + b"\r\n"


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return a framing line, possibly empty, and a body that fits it."""
    match draw(st.integers(0, 2)):
        case 0:
            return b"", b""
        case 1:
            body = draw(st.binary(max_size=100))
            return b"Content-Length: %d\r\n" % len(body), body
        case _:
            return b"Transfer-Encoding: chunked\r\n", draw(chunked())


class DifferentialTests(SynchronousTestCase):
    """Everything that reads HTTP."""

    @settings(max_examples=150, deadline=None)
    @given(METHODS, TARGETS, FIELDS, bodies(), CHANCES)
    def test_requests(
        self, method: bytes, target: bytes, fields: bytes, body: tuple[bytes, bytes], chance: random.Random
    ) -> None:
        """From the user's bytes to those for the API server, split anywhere."""
        line = b"%b %b HTTP/1.1\r\nHost: tower\r\n%b%b\r\n"
        request = line % (method, b"/clusters/alpha" + target, body[0], fields)
        check_head(request, chance)
        check_user(request + body[1] + request + body[1], chance)

    @settings(max_examples=150, deadline=None)
    @given(METHODS, TARGETS, FIELDS, bodies(), CHANCES)
    def test_at_the_agent(
        self, method: bytes, target: bytes, fields: bytes, body: tuple[bytes, bytes], chance: random.Random
    ) -> None:
        """In the form that the agent takes, one behind the other."""
        line = b"%b %b HTTP/1.1\r\n%bImpersonate-User: jane\r\nHost: t\r\n%b\r\n"
        request = line % (method, target, body[0], fields)
        check_policy(request, chance)
        check_agent(request + body[1] + request + body[1], chance)

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from((200, 201, 204, 302, 304, 404, 500)), FIELDS, bodies(), CHANCES)
    def test_answers(
        self, code: int, fields: bytes, body: tuple[bytes, bytes], chance: random.Random
    ) -> None:
        """From the API server's bytes to those for the user, split anywhere."""
        answer = b"HTTP/1.1 %d X\r\n%b%b\r\n" % (code, body[0], fields)
        check_response(answer, chance)
        check_answer(answer + (b"" if code in (204, 304) else body[1]), chance)

    @settings(max_examples=200, deadline=None)
    @given(chunked(), st.binary(max_size=20), CHANCES)
    def test_chunks(self, body: bytes, behind: bytes, chance: random.Random) -> None:
        """Chunked bodies, and the bytes after them."""
        check_chunks(body + behind, chance)
