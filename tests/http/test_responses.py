"""Tests for `tower.http.responses`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.http.bodies import CHUNKED, UNTIL_CLOSE
from tower.http.responses import (
    PLAIN,
    BadResponse,
    ResponseHead,
    check_unfinished,
    leads_away,
    rewritten_location,
)


def head(*lines: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    """Return a head."""
    return b"\r\n".join([status, *lines]) + b"\r\n\r\n"


class PlainTests(SynchronousTestCase):
    """Heads that need no change."""

    def test_plain(self) -> None:
        """Status and length are found among any other fields."""
        for lines, groups in (
            ((b"Content-Length: 5",), (b"200", b"5")),
            ((b"Date: x", b"content-length: 5", b"X-A: b"), (b"200", b"5")),
            ((b"Cache-Control: a", b"Transfer-Encoding: chunked", b"Content-Type: b"), (b"200", None)),
            ((b"Connection: keep-alive", b"Content-Length: 0", b"ETag: \xff"), (b"200", b"0")),
            ((b"Content-Type:", b"Content-Length: 0", b"Trailer: X", b"Links: a"), (b"200", b"0")),
        ):
            match = PLAIN.match(head(*lines) + b"body")
            assert match is not None, lines
            self.assertEqual(match.groups(), groups)
            self.assertEqual(match.end(), len(head(*lines)))

    def test_not_plain(self) -> None:
        """Anything that needs parsing, or is not a head, is not plain."""
        for wire in (
            head(),
            head(b"Content-Length: 1", b"Content-Length: 1"),
            head(b"Content-Length: 1", b"content-LENGTH: 1"),
            head(b"Content-Length: 1", b"Transfer-Encoding: chunked"),
            head(b"Transfer-Encoding: chunked", b"Content-Length: 1"),
            head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
            head(b"Transfer-Encoding: gzip"),
            head(b"Transfer-Encoding: gzip", b"Content-Length: 1"),
            head(b"Content-Length: -1"),
            head(b"Content-Length: 1 "),
            head(b"Content-Length:1"),
            head(b"Content-Length: 1", b"Connection: close"),
            head(b"Content-Length: 1", b"Keep-Alive: 5"),
            head(b"Content-Length: 1", b"Upgrade: x"),
            head(b"Content-Length: 1", b"Proxy-Connection: x"),
            head(b"Content-Length: 1", b"TE: x"),
            head(b"Content-Length: 1", b"Location: /x"),
            head(b"Content-Length: 0", status=b"HTTP/1.1 204 No Content"),
            head(b"Content-Length: 1", b"A: b\r\n c"),
            head(b"Content-Length: 1", b"A : b"),
            head(b"Content-Length: 1", b"A: b\nC: d"),
            head(b"Content-Length: 1", b"A: \0"),
            head(b"Content-Length: 1")[:-2],
            head(b"Content-Length: 1", status=b"HTTP/1.0 200 OK"),
            head(b"Content-Length: 1", status=b"HTTP/1.1 100 Continue"),
            head(b"Content-Length: 1", status=b"HTTP/1.1 101 x"),
            head(b"Content-Length: 1", status=b"HTTP/1.1 600 x"),
            head(b"Content-Length: 1", status=b"HTTP/1.1 20 x"),
            head(b"Content-Length: 1", status=b"HTTP/1.1 2000 x"),
            head(b"Content-Length: 1", status=b" HTTP/1.1 200 OK"),
        ):
            self.assertIsNone(PLAIN.match(wire), wire)

    @given(
        st.lists(
            st.sampled_from(
                [
                    b"Content-Length: 3",
                    b"content-length:3",
                    b"Transfer-Encoding: chunked",
                    b"Date: x",
                    b"A:",
                    b"Kind: b",
                ]
            ),
            max_size=6,
        )
    )
    def test_same_verdict(self, lines: list[bytes]) -> None:
        """The full parser reads a plain head in the same sense."""
        wire = head(*lines)
        match = PLAIN.match(wire)
        if match is None:
            return
        read = ResponseHead(wire, bodiless=False)
        self.assertEqual(read.body, int(match[2]) if match[2] else CHUNKED)
        self.assertFalse(read.close)


class ResponseHeadTests(SynchronousTestCase):
    """Heads that are looked at."""

    def test_framing(self) -> None:
        """The end of the body depends on status, request and fields."""
        for wire, bodiless, body in (
            (head(b"Content-Length: 5"), False, 5),
            (head(b"Content-Length: 5"), True, 0),
            (head(b"TRANSFER-ENCODING:Chunked"), False, CHUNKED),
            (head(), False, UNTIL_CLOSE),
            (head(), True, 0),
            (head(b"Content-Length: 5", status=b"HTTP/1.1 304 x"), False, 0),
            (head(b"Content-Length: 5", status=b"HTTP/1.1 204 x"), False, 0),
            (head(status=b"HTTP/1.1 100 Continue"), False, 0),
        ):
            self.assertEqual(ResponseHead(wire, bodiless=bodiless).body, body, wire)

    def test_refused(self) -> None:
        """Ambiguous framing is rejected, even where no body is allowed."""
        for bodiless in (False, True):
            for lines in (
                (b"Content-Length: 1", b"Content-Length: 1"),
                (b"Content-Length: 1, 1",),
                (b"Content-Length: 1", b"Transfer-Encoding: chunked"),
                (b"Transfer-Encoding: identity",),
                (b"Content-Length:",),
                (b"A : b",),
                (b" A: b",),
                (b"A: b\rC: d",),
            ):
                with self.assertRaises(BadResponse, msg=repr(lines)):
                    ResponseHead(head(*lines), bodiless=bodiless)

    def test_lines(self) -> None:
        """Hop-by-hop fields and those that Connection names are left out, others are kept."""
        read = ResponseHead(
            head(
                b"Connection: X-Hop, Content-Type",
                b"X-Hop: 1",
                b"Content-Type: a",
                b"Keep-Alive: 1",
                b"Set-Cookie: a",
                b"Set-Cookie: b",
                b"Content-Length: 0",
            ),
            bodiless=False,
        )
        self.assertEqual(
            read.lines,
            b"HTTP/1.1 200 OK\r\nContent-Type: a\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\n",
        )

    def test_close(self) -> None:
        """HTTP/1.0 closes by default, HTTP/1.1 does not."""
        for status, lines, close in (
            (b"HTTP/1.1 200 OK", (), False),
            (b"HTTP/1.1 200 OK", (b"Connection: Close",), True),
            (b"HTTP/1.0 200 OK", (), True),
            (b"HTTP/1.0 200 OK", (b"Connection: keep-alive",), False),
        ):
            self.assertEqual(ResponseHead(head(*lines, status=status), bodiless=False).close, close)

    def test_switch(self) -> None:
        """A 101 keeps what makes it one."""
        read = ResponseHead(
            head(b"connection: upgrade", b"upgrade: websocket", status=b"HTTP/1.1 101 S"), bodiless=False
        )
        self.assertEqual(read.lines, b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")

    def test_unfinished(self) -> None:
        """A head has an end."""
        check_unfinished(b"a" * 65_536)
        self.assertRaises(BadResponse, check_unfinished, b"a" * 65_537)

    def test_location_of_others(self) -> None:
        """Only what leads back to this server is rewritten."""
        for location, expected in (
            (b"/a", b"/p/a"),
            (b"HTTP://Tower/a", b"/p/a"),
            (b"http://tower", b"/p"),
            (b"http://tower.evil/a", b"http://tower.evil/a"),
            (b"ftp://tower/a", b"ftp://tower/a"),
            (b"//tower/a", b"//tower/a"),
            (b"", b""),
        ):
            self.assertEqual(rewritten_location(location, b"/p", b"tower"), expected)

    def test_leads_away(self) -> None:
        """A redirect leaves the cluster by another host, and by dots, in every reading."""
        path = b"/clusters/alpha/api/v1"
        for location, expected in (
            (b"/clusters/alpha/x?a=/../b#/..", False),
            (b"pods", False),
            (b"", False),
            (b"?watch=1", False),
            (b"#top", False),
            (b"https://elsewhere/", True),
            (b"javascript:x", True),
            (b"//elsewhere/", True),
            (b"/\\elsewhere/", True),
            (b"\\\\elsewhere/", True),
            (b"ht\ttp://elsewhere/", True),
            (b"/clusters/alpha/../beta", True),
            (b"/clusters/alpha/%2E%2e/beta", True),
            (b"/clusters/alpha/x/..%2fbeta", True),
            (b"../../beta/api", True),
            (b"..", True),
            (b"x/../..", True),
        ):
            self.assertEqual(leads_away(location, path, b"/clusters/alpha"), expected, location)
        self.assertTrue(leads_away(b"beta/api", b"/clusters/alpha", b"/clusters/alpha"))
        self.assertFalse(leads_away(b"../x", b"/a", b""))  # the port of one cluster
        self.assertTrue(leads_away(b"https://elsewhere/", b"/a", b""))

    def test_location_of_the_api_server(self) -> None:
        """A URL with the API server's own name, which users cannot reach, is rewritten to ours."""
        for location, expected in (
            (b"https://api:6443/a?b", b"/p/a?b"),
            (b"HTTPS://API:6443", b"/p/"),
            (b"http://api:6443/", b"/p/"),
            (b"https://api/a", b"https://api/a"),
            (b"https://api:6443.evil/a", b"https://api:6443.evil/a"),
            (b"https://me@api:6443/a", b"https://me@api:6443/a"),
            (b"//api:6443/a", b"//api:6443/a"),
            (b"/a", b"/p/a"),
        ):
            self.assertEqual(rewritten_location(location, b"/p", b"tower", b"api:6443"), expected)
        for location, expected in (
            (b"https://rancher/k8s/c-1/a", b"/p/a"),
            (b"https://rancher/k8s/c-1", b"/p/"),
            (b"https://rancher/login", b"https://rancher/login"),
            (b"https://rancher/k8s/c-10", b"https://rancher/k8s/c-10"),
            (b"/k8s/c-1/a", b"/p/a"),
            (b"/k8s/c-10/a", b"/p/k8s/c-10/a"),
            (b"https://tower/a", b"/p/a"),
        ):
            self.assertEqual(rewritten_location(location, b"/p", b"tower", b"rancher/k8s/c-1"), expected)
