"""Tests for `tower.http.requests`: a test for each shape that is not plain HTTP/1.1."""

from __future__ import annotations

import re
import tracemalloc
from itertools import zip_longest

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.http.bodies import CHUNKED
from tower.http.requests import HEAD_LIMIT, BadHead, Fields, HeadReader, check_unfinished


def head(*fields: bytes, line: bytes = b"GET /api HTTP/1.1", host: bool = True) -> bytes:
    """Return a head."""
    hosts = [b"Host: tower"] if host else []
    return b"\r\n".join([line, *hosts, *fields]) + b"\r\n\r\n"


def fields(*lines: bytes) -> Fields:
    """Return what the fields of a request mean."""
    return HeadReader().read(head(*lines))[3]


class LineTests(SynchronousTestCase):
    """The request line."""

    def refused(self, line: bytes, code: int = 400) -> None:
        """Check that *line* is refused."""
        with self.assertRaises(BadHead, msg=repr(line)) as caught:
            HeadReader().read(head(line=line))
        self.assertEqual(caught.exception.code, code)

    def test_plain(self) -> None:
        """Method, target and version are found."""
        method, target, minor, _ = HeadReader().read(head(line=b"PATCH /a?b=c HTTP/1.1"))
        self.assertEqual((method, target, minor), (b"PATCH", b"/a?b=c", 1))

    def test_version(self) -> None:
        """Only HTTP/1.1 and HTTP/1.0 are spoken."""
        for version in (
            b"HTTP/2.0",
            b"HTTP/1.2",
            b"HTTP/1.10",
            b"HTTP/0.9",
            b"http/1.1",
            b"HTTP/1.1 ",
            b"HTTP",
            b"",
        ):
            self.refused(b"GET /api " + version)
        self.refused(b"GET /api")
        self.refused(b"PRI * HTTP/2.0")

    def test_absolute_form(self) -> None:
        """The absolute form is for forward proxies."""
        self.refused(b"GET http://tower/api HTTP/1.1")
        self.refused(b"GET tower/api HTTP/1.1")

    def test_asterisk(self) -> None:
        """There is no server-wide OPTIONS."""
        self.refused(b"OPTIONS * HTTP/1.1")

    def test_connect(self) -> None:
        """CONNECT, whose response is framed differently, is rejected in any form."""
        self.refused(b"CONNECT tower:443 HTTP/1.1")
        self.refused(b"CONNECT /api HTTP/1.1")
        self.refused(b"CONNECT /api HTTP/1.0")

    def test_blanks(self) -> None:
        """One blank between the parts, none within."""
        for line in (
            b"GET  /api HTTP/1.1",
            b"GET /api  HTTP/1.1",
            b" GET /api HTTP/1.1",
            b"GET\t/api HTTP/1.1",
            b"GET /a b HTTP/1.1",
            b"GET /api\tHTTP/1.1",
            b"GET /api\x0bHTTP/1.1",
        ):
            self.refused(line)

    def test_method(self) -> None:
        """A method is a word of capitals."""
        for line in (
            b"get /api HTTP/1.1",
            b"G\0T /api HTTP/1.1",
            b"/api HTTP/1.1",
            b"A" * 25 + b" /api HTTP/1.1",
        ):
            self.refused(line)

    def test_bytes_of_the_target(self) -> None:
        """A target is printable ASCII without a fragment."""
        for byte in (0, 9, 10, 13, 0x20, 0x23, 0x7F, 0x80, 0xFF):
            self.refused(b"GET /a%cb HTTP/1.1" % byte)

    def test_dot_segments(self) -> None:
        """Dot segments are rejected in any spelling, with any separator."""
        for path in (
            b"/.",
            b"/..",
            b"/./a",
            b"/../a",
            b"/a/..",
            b"/a/../b",
            b"/a/.",
            b"/%2e",
            b"/%2E%2e/a",
            b"/.%2e/a",
            b"/%2e./a",
            b"/a%2f..%2fb",
            b"/a%2F%2e%2e",
            b"/a\\..\\b",
            b"/a%5c..",
            b"/..;/a",
            b"/a;../b",
            b"/..?x",
            b"/..%3bx",
        ):
            self.refused(b"GET %b HTTP/1.1" % path)

    def test_no_dot_segments(self) -> None:
        """Dots elsewhere are fine."""
        for path in (
            b"/...",
            b"/.a",
            b"/a.",
            b"/..a",
            b"/a..",
            b"/a..b/c",
            b"/a?/../",
            b"/a%2eb",
            b"/.well-known/x",
        ):
            self.assertEqual(HeadReader().read(head(line=b"GET %b HTTP/1.1" % path))[1], path)


class FieldTests(SynchronousTestCase):
    """The fields."""

    def refused(self, *lines: bytes, code: int = 400, host: bool = True) -> None:
        """Check that these fields are refused."""
        with self.assertRaises(BadHead, msg=repr(lines)) as caught:
            HeadReader().read(head(*lines, host=host))
        self.assertEqual(caught.exception.code, code)

    def test_host(self) -> None:
        """There is exactly one Host, and it is valid."""
        self.refused(host=False)
        self.refused(b"Host: other")
        self.refused(b"host: tower")
        for value in (
            b"",
            b"a b",
            b"a/b",
            b"user@a",
            b"a:b",
            b"a:1:2",
            b"[::1",
            b"a,b",
            b"http://a",
            b"a?b",
            b"\xff",
        ):
            self.refused(b"Host: " + value, host=False)
        for value in (b"a", b"a.b:8443", b"192.0.2.1", b"[::1]:8443", b"[fe80::1%25eth0]", b"a_b"):
            self.assertEqual(HeadReader().read(head(b"hOST:" + value, host=False))[3].host, value)

    def test_folded(self) -> None:
        """A field over two lines is refused."""
        for lines in ((b"A: b\r\n c",), (b"A: b", b"\tc: d"), (b"A:", b" b")):
            self.refused(*lines)
        with self.assertRaises(BadHead):
            HeadReader().read(b"GET / HTTP/1.1\r\n Host: a\r\n\r\n")

    def test_bare_line_ends(self) -> None:
        """LF or CR alone ends no line."""
        for value in (b"A: b\nC: d", b"A: b\rC: d", b"A: b\n\rC: d", b"A: b\r\r", b"A: b\r"):
            self.refused(value)

    def test_control_bytes(self) -> None:
        """NUL and other control characters are rejected everywhere."""
        for byte in (0, 1, 8, 0x0B, 0x0C, 0x1F, 0x7F):
            self.refused(b"A: b%cc" % byte)
            self.refused(b"A%c: b" % byte)

    def test_names(self) -> None:
        """A name is a token right before its colon."""
        for line in (
            b"A : b",
            b"A\t: b",
            b": b",
            b"A b: c",
            b"A",
            b"(A): b",
            b"A\xe4: b",
            b'"A": b',
            b"A/B: c",
        ):
            self.refused(line)

    def test_values(self) -> None:
        """A value may be empty, have bytes beyond ASCII and tabs; blanks around it go."""
        self.assertEqual(fields(b"A:", b"B:\t b\xe4\tc \t").onward, b"Host: tower\r\nA: \r\nB: b\xe4\tc\r\n")

    def test_content_length(self) -> None:
        """One length, in digits."""
        for value in (
            b"",
            b"+1",
            b"-1",
            b"1 ",
            b"0x1",
            b"1,1",
            b"1, 1",
            b"1 1",
            b"1.0",
            b"1_0",
            b"1" * 19,
            b"\xb2",
        ):
            if value.strip() == b"1":
                continue
            self.refused(b"Content-Length: " + value)
        self.refused(b"Content-Length: 1", b"Content-Length: 1")
        self.refused(b"Content-Length: 1", b"content-length: 2")
        read = fields(b"Content-Length:007")
        self.assertEqual((read.body, read.framing), (7, b"Content-Length: 007\r\n"))
        read = fields(b"Content-Length: 0")
        self.assertEqual((read.body, read.framing), (0, b"Content-Length: 0\r\n"))
        self.assertEqual((fields().body, fields().framing), (0, b""))

    def test_transfer_encoding(self) -> None:
        """Chunked, once, and without a length."""
        for value in (
            b"gzip",
            b"gzip, chunked",
            b"chunked, chunked",
            b"identity",
            b"chunked;q=1",
            b"",
            b"x-chunked",
        ):
            self.refused(b"Transfer-Encoding: " + value, code=501)
        self.refused(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")
        self.refused(b"Transfer-Encoding: chunked", b"transfer-encoding: identity")
        self.refused(b"Transfer-Encoding: chunked", b"Content-Length: 1")
        self.refused(b"Content-Length: 1", b"Transfer-Encoding: chunked")
        self.refused(b"Transfer-Encoding:\x0bchunked")
        self.refused(b"Transfer-Encoding : chunked")
        read = fields(b"transfer-encoding:\tChunked ")
        self.assertEqual((read.body, read.framing), (CHUNKED, b"Transfer-Encoding: chunked\r\n"))

    def test_http10(self) -> None:
        """HTTP/1.0 may lack a Host, and has no chunks and no upgrade."""
        line = b"GET / HTTP/1.0"
        self.assertEqual(HeadReader().read(head(line=line, host=False))[3].host, b"")
        for lines in ((b"Transfer-Encoding: chunked",), (b"Connection: upgrade", b"Upgrade: a")):
            with self.assertRaises(BadHead):
                HeadReader().read(head(*lines, line=line))
        with self.assertRaises(BadHead):
            HeadReader().read(head(b"Host: other", line=line))

    def test_expect(self) -> None:
        """There is one expectation."""
        self.refused(b"Expect: a-party", code=417)
        self.refused(b"Expect: 100-continue", b"Expect: 100-continue")
        self.assertTrue(fields(b"Expect: 100-Continue").expects)
        self.assertFalse(fields().expects)

    def test_connection(self) -> None:
        """Connection names what stays here, but never what matters further on."""
        read = fields(b"Connection: close, X-Hop", b"connection:,keep-alive ,", b"X-Hop: 1", b"A: b")
        self.assertTrue(read.close)
        self.assertEqual(read.onward, b"Host: tower\r\nA: b\r\n")
        for name in (
            b"Host",
            b"Authorization",
            b"Content-Length",
            b"Transfer-Encoding",
            b"Content-Type",
            b"Impersonate-User",
            b"x-remote-user",
            b"Cookie",
            b"Sec-WebSocket-Protocol",
        ):
            self.refused(b"Connection: keep-alive, " + name)
        self.refused(b"Connection: a b")
        self.refused(b'Connection: "a"')

    def test_upgrade(self) -> None:
        """An upgrade needs both fields, and one protocol."""
        self.assertEqual(fields(b"Connection: Upgrade", b"Upgrade: SPDY/3.1").upgrade, b"SPDY/3.1")
        self.assertEqual(fields(b"Upgrade: websocket").upgrade, b"")
        self.assertEqual(fields(b"Connection: upgrade").upgrade, b"")
        self.refused(b"Connection: upgrade", b"Upgrade: a, b")
        self.refused(b"Connection: upgrade", b"Upgrade: a", b"Upgrade: b")
        for protocol in (b"h2c", b"H2C", b"HTTP/2.0", b"TLS/1.2"):
            self.assertEqual(fields(b"Connection: upgrade", b"Upgrade: " + protocol).upgrade, b"")

    def test_identity(self) -> None:
        """Fields that claim an identity are noticed in any case."""
        for name in (
            b"Impersonate-User",
            b"impersonate-extra-scopes",
            b"IMPERSONATE-UID",
            b"X-Remote-User",
            b"x-remote-group",
            b"X_Remote_User",
            b"Impersonate_User",
        ):
            self.assertEqual(fields(name + b": a").foreign, name)
        self.assertEqual(fields(b"X-Remotely: a", b"Impersonator: b").foreign, b"")

    def test_bearer(self) -> None:
        """The token is found and not forwarded; other schemes are not tokens."""
        read = fields(b"authorization: bearer  abc ")
        self.assertEqual(read.bearer, b"abc")
        self.assertNotIn(b"abc", read.onward)
        self.assertNotIn("abc", repr(read))
        for value in (b"Basic abc", b"Bearer", b"Bearer ", b"", b"Bearerabc"):
            read = fields(b"Authorization: " + value)
            self.assertIsNone(read.bearer)
            self.assertEqual(read.onward, b"Host: tower\r\n")
        self.refused(b"Authorization: Bearer a", b"Authorization: Bearer b")

    def test_bearer_in_subprotocol(self) -> None:
        """A token in a WebSocket subprotocol is found, decoded and taken out."""
        prefix = b"base64url.bearer.authorization.k8s.io."
        read = fields(
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io," + prefix + b"YWJj", b"sec-websocket-protocol: v4"
        )
        self.assertEqual(read.bearer, b"abc")
        self.assertEqual(read.onward, b"Host: tower\r\nSec-WebSocket-Protocol: v5.channel.k8s.io, v4\r\n")
        self.refused(b"Sec-WebSocket-Protocol: " + prefix + b"YWJj", code=401)
        self.refused(b"Sec-WebSocket-Protocol: a, " + prefix + b"YWJj, " + prefix + b"YWJj", code=401)
        for encoded in (b"Y", b"Y.Jj", b"Y+Jj"):
            self.refused(b"Sec-WebSocket-Protocol: a, " + prefix + encoded, code=401)
        capitals = fields(b"Sec-WebSocket-Protocol: a, " + prefix.upper() + b"YWJj")
        self.assertEqual((capitals.bearer, b"BEARER" in capitals.onward), (b"abc", False))
        self.assertEqual(capitals.end_to_end(bearer=False), b"Host: tower\r\nSec-WebSocket-Protocol: a\r\n")
        for strange in (b"x" + prefix + b"YWJj", prefix[:-1], prefix[:-1] + b"/YWJj"):
            self.refused(b"Sec-WebSocket-Protocol: a, " + strange, code=401)
        self.assertEqual(
            fields(b"Authorization: Bearer x", b"Sec-WebSocket-Protocol: a, " + prefix + b"YWJj").bearer, b"x"
        )

    def test_forwarding(self) -> None:
        """Forwarding fields of the client are dropped."""
        read = fields(
            b"X-Forwarded-For: 1",
            b"X-Forwarded-Proto: http",
            b"Forwarded: for=1",
            b"X-Real-IP: 1",
            b"Via: 1.1 a",
        )
        self.assertEqual(read.onward, b"Host: tower\r\nVia: 1.1 a\r\n")

    def test_end_to_end(self) -> None:
        """All fields but the connection's own are kept in their order, whatever they claim."""
        kept = (
            *(b"Host: tower", b"X-Forwarded-For: 192.0.2.1", b"Cookie: a=b", b"Cookie: c", b"Via: 1.0 x"),
            *(b"Authorization: Basic YTpi", b"Impersonate-User: root", b"x_remote_user: root"),
            *(
                b"Expect: 100-continue",
                b"Forwarded: for=1",
                b"X-Real-IP: 1",
                b"Content-Type: a/b",
                b"Empty: ",
            ),
            *(b"Sec-WebSocket-Protocol: a, b", b"Trailer: X-Sum"),
        )
        dropped = (
            *(b"Connection: close, X-Hop", b"keep-alive: 5", b"X-Hop: 1", b"TE: trailers", b"Upgrade: h2c"),
            *(b"Proxy-Connection: close", b"Proxy-Authorization: Basic YTpi", b"Content-Length: 3"),
        )
        lines = [line for pair in zip_longest(kept, dropped) for line in pair if line and line != kept[0]]
        for bearer in (True, False):
            self.assertEqual(
                fields(*lines).end_to_end(bearer=bearer), b"".join(line + b"\r\n" for line in kept)
            )

    def test_bearer_is_taken_out(self) -> None:
        """A bearer token stays here when it is to, from wherever it came, and everything else passes."""
        token = b"Authorization: bEARER secret"
        carrier = b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YTpi"
        for lines, kept in (
            ((token, b"Cookie: secret"), b"Host: tower\r\nCookie: secret\r\n"),
            ((carrier + b",  v4",), b"Host: tower\r\nSec-WebSocket-Protocol: v4\r\n"),
            ((carrier, b"Sec-WebSocket-Protocol: v4"), b"Host: tower\r\nSec-WebSocket-Protocol: v4\r\n"),
        ):
            self.assertEqual(fields(*lines).end_to_end(bearer=False), kept)
            self.assertEqual(
                fields(*lines).end_to_end(bearer=True),
                b"".join(line + b"\r\n" for line in (b"Host: tower", *lines)),
            )

    def test_get(self) -> None:
        """A router finds a field by its lower-case name."""
        self.assertEqual(fields(b"Accept: a", b"ACCEPT: b").get(b"accept"), b"a")
        self.assertIsNone(fields().get(b"accept"))


class ReaderTests(SynchronousTestCase):
    """Many heads on one connection."""

    def test_repeated_fields_are_read_once(self) -> None:
        """Equal fields share what was read, others do not."""
        reader = HeadReader()
        first = reader.read(head(b"A: b"))[3]
        self.assertIs(reader.read(head(b"A: b", line=b"GET /other HTTP/1.1"))[3], first)
        self.assertIsNot(reader.read(head(b"A: c"))[3], first)

    def test_version_counts_each_time(self) -> None:
        """Fields that are valid for HTTP/1.1 are checked again for HTTP/1.0, and vice versa."""
        reader = HeadReader()
        reader.read(head(b"Transfer-Encoding: chunked"))
        with self.assertRaises(BadHead):
            reader.read(head(b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0"))
        reader.read(b"GET / HTTP/1.0\r\n\r\n")
        with self.assertRaises(BadHead):
            reader.read(b"GET / HTTP/1.1\r\n\r\n")

    def test_bad_fields_are_not_remembered(self) -> None:
        """Rejected fields are rejected again."""
        reader = HeadReader()
        for _ in range(2):
            with self.assertRaises(BadHead):
                reader.read(head(b"Host: b"))

    def test_unfinished(self) -> None:
        """A beginning that cannot become a good head is refused at once."""
        check_unfinished(b"GET / HTTP/1.1\r\nHost: a\r")
        with self.assertRaises(BadHead):
            check_unfinished(b"GET / HTTP/1.1\nHost: a")
        with self.assertRaises(BadHead) as caught:
            check_unfinished(b"a" * (HEAD_LIMIT + 1))
        self.assertEqual(caught.exception.code, 431)

    @given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a"])), st.data())
    def test_unfinished_in_pieces(self, parts: list[bytes], data: st.DataObject) -> None:
        """A line that ends without CR is found wherever the head was cut, and no other."""
        whole = b"".join(parts)
        cut = data.draw(st.integers(0, len(whole)))
        refused = False
        try:
            check_unfinished(whole[:cut])
            check_unfinished(whole, cut)
        except BadHead:
            refused = True
        self.assertEqual(refused, re.search(rb"(?<!\r)\n", whole) is not None)

    @given(st.binary(max_size=200))
    def test_anything(self, data: bytes) -> None:
        """Any input is parsed or rejected."""
        try:
            HeadReader().read(b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n")
        except BadHead:
            pass

    def test_no_backtracking(self) -> None:
        """The longest heads cost no more than their length."""
        evil = head(b"A:" + b" " * 30_000 + b"\x00", b"a" * 30_000)
        with self.assertRaises(BadHead):
            HeadReader().read(evil)
        many = head(*[b"A: b"] * 9_000)
        tracemalloc.start()
        try:
            HeadReader().read(many)
            self.assertLess(tracemalloc.get_traced_memory()[1], 20_000_000)
        finally:
            tracemalloc.stop()


class BearerTests(SynchronousTestCase):
    def test_forms(self) -> None:
        """The scheme's case and surrounding blanks are ignored; other schemes have no token."""
        cases = [
            (None, None),
            (b"", None),
            (b"Bearer", None),
            (b"Bearer ", None),
            (b"Basic dTpw", None),
            (b"Bearertoken", None),
            (b"Bearer abc", b"abc"),
            (b"bEARER  abc \t", b"abc"),
            (b"Bearer a b", b"a b"),
        ]
        for value, token in cases:
            line = b"" if value is None else b"Authorization: %b\r\n" % value
            self.assertEqual(Fields(b"Host: h\r\n%b\r\n" % line).bearer, token, value)
