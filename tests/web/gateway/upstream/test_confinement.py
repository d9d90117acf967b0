"""Tests for `tower.web.gateway.upstream.confinement`, and for its use in the relay."""

from __future__ import annotations

import email
import urllib.request
from http.cookiejar import CookieJar
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get, ok
from tower.http.bodies import BadBody, ChunkedBody
from tower.web.gateway.upstream.confinement import (
    ACTS_ON_ORIGIN,
    ORIGIN_FIELDS,
    TRAILERS,
    confined,
    confined_cookie,
)

SCOPE = b"/clusters/alpha"
PATH = b"/clusters/alpha/apps/shop/cart"
WIKI = b"/clusters/alpha/targets/wiki"

#: Attributes after a cookie's name and value, and the expected ones.
COOKIES = (
    (b"", b"; Path=/clusters/alpha/apps/shop/"),
    (b"; Path=/", b"; Path=/clusters/alpha/"),
    (b"; Path=/foo", b"; Path=/clusters/alpha/foo"),
    (b"; path=/foo/;HttpOnly", b"; Path=/clusters/alpha/foo/; HttpOnly"),
    (b"; PATH = /foo ; SameSite=None", b"; Path=/clusters/alpha/foo; SameSite=None"),
    (b";\tPath=/foo", b"; Path=/clusters/alpha/foo"),
    (b"; Path=/clusters/alpha/foo", b"; Path=/clusters/alpha/foo"),
    (b"; Path=/clusters/alpha", b"; Path=/clusters/alpha/"),
    (b"; Path=/clusters/alphabet/x", b"; Path=/clusters/alpha/clusters/alphabet/x"),
    (b"; Path=/clusters/beta/", b"; Path=/clusters/alpha/clusters/beta/"),
    (b"; Path=/one; Path=/two", b"; Path=/clusters/alpha/two"),
    (b"; Path=/one; Path=", b"; Path=/clusters/alpha/apps/shop/"),
    (b"; Path=one", b"; Path=/clusters/alpha/apps/shop/"),
    (b'; Path="/one"', b"; Path=/clusters/alpha/apps/shop/"),
    (b"; Path=/../beta/", b"; Path=/clusters/alpha/"),
    (b"; Path=/clusters/alpha/../beta/", b"; Path=/clusters/alpha/"),
    (b"; Path=/%2E%2e/beta", b"; Path=/clusters/alpha/"),
    (b"; Path=/a\\b", b"; Path=/clusters/alpha/"),
    (b"; Path=/a b", b"; Path=/clusters/alpha/"),
    (b"; Path=/\xe9", b"; Path=/clusters/alpha/"),
    (b"; Domain=example.com; Path=/", b"; Path=/clusters/alpha/"),
    (b"; DOMAIN=.example.com;domain=x", b"; Path=/clusters/alpha/apps/shop/"),
    (
        b"; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/; Secure",
        b"; Path=/clusters/alpha/; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Secure",
    ),
    (
        b"; Max-Age=5; Partitioned; Priority=High;;",
        b"; Path=/clusters/alpha/apps/shop/; Max-Age=5; Partitioned; Priority=High",
    ),
    (b'; Comment="; Path=/x', b"; Path=/clusters/alpha/x"),
    (b"; \xa0Path=/x; unknown=1", b"; Path=/clusters/alpha/apps/shop/"),
)

#: Attributes that a member may send.
ATTRIBUTES = [
    *(b"Path=/", b"path=/clusters/beta", b"PATH", b"Path=", b" path = /", b"\tPath\t=\t/x", b'Path="/"'),
    *(b"Path=/clusters/beta/; Path=/", b"Path=/clusters/alpha/..", b"\x85path=/", b"Domain=tower.example"),
    *(b"Domain=.example", b'x="', b"Expires=Wed, 21 Oct 2037 07:28:00 GMT", b"Version=1", b'Port="80"'),
]


class Response:
    """The interface that `http.cookiejar` expects of a response."""

    def __init__(self, *cookies: bytes) -> None:
        self._text = b"".join(b"Set-Cookie: %b\n" % cookie for cookie in cookies).decode("latin-1")

    def info(self) -> Any:
        """Return the head."""
        return email.message_from_string(self._text)


def sent_to(path: str, cookie: bytes, asked: bytes) -> str | None:
    """Return the Cookie field for *path* of a browser that got *cookie* from *asked* on the same host."""
    jar = CookieJar()
    origin = "https://tower.example:8443"
    response: Any = Response(cookie)
    jar.extract_cookies(response, urllib.request.Request(origin + asked.decode()))
    request = urllib.request.Request(origin + path)
    jar.add_cookie_header(request)
    return request.get_header("Cookie")


class CookieTests(SynchronousTestCase):
    """``Set-Cookie`` on the front door."""

    def test_table(self) -> None:
        """Every attribute is parsed as browsers do, and the resulting path is the cluster's."""
        for given_, expected in COOKIES:
            self.assertEqual(confined_cookie(b" a=b" + given_, SCOPE, PATH), b"a=b" + expected, given_)

    def test_root(self) -> None:
        """At the root of a cluster, whose default path would be shared, a cookie is confined too."""
        for path in (
            b"/clusters/alpha",
            b"/clusters/alpha/",
            b"/api/v1/pods",
            b"/clusters/alpha/a;b/c",
            b"/",
        ):
            self.assertEqual(confined_cookie(b"a=b", SCOPE, path), b"a=b; Path=/clusters/alpha/", path)

    def test_targets(self) -> None:
        """A target's cookie is confined to the target, not to its cluster."""
        cookie = confined_cookie(b"a=b; Path=/", WIKI, WIKI + b"/login")
        self.assertEqual(cookie, b"a=b; Path=/clusters/alpha/targets/wiki/")

    def test_none(self) -> None:
        """A cookie that is invalid or cannot be confined is dropped; name and value are never changed."""
        for value in (
            b"",
            b" ; Path=/",
            b"=; Path=/",
            b"__Host-a=b; Secure; Path=/",
            b"=__host-a=b",
            b'a="b; Path=/"',
        ):
            self.assertEqual(confined_cookie(value, SCOPE, PATH), b"", value)
        for pair in (
            b"__Secure-a=b",
            b'a="b c"',
            b"a",
            b"a=",
            b"path=/x",
            b"a=b=c",
            b"a=b, c=d",
            b"\xe9=\xff",
        ):
            self.assertEqual(
                confined_cookie(pair + b"; Path=/", SCOPE, PATH), pair + b"; Path=/clusters/alpha/"
            )

    @given(
        st.lists(
            st.sampled_from(ATTRIBUTES),
            max_size=6,
        ),
        st.sampled_from([b";", b"; ", b" ;", b",", b", "]),
        st.sampled_from([SCOPE, SCOPE + b"/", SCOPE + b"/a/b", b"/api/v1"]),
    )
    def test_no_neighbour_gets_one(self, attributes: list[bytes], separator: bytes, asked: bytes) -> None:
        """A cookie jar returns a member's cookie to that member only, for any attributes."""
        cookie = confined_cookie(separator.join([b"a=b", *attributes]), SCOPE, asked)
        for path in ("/clusters/beta/", "/clusters/alphabet", "/clusters/", "/", "/apis/x", "/clusters/beta"):
            self.assertIsNone(sent_to(path, cookie, asked), cookie)

    def test_jar(self) -> None:
        """The jar of the test above works: without confinement another cluster gets the cookie."""
        raw = b"a=b; Path=/"
        self.assertEqual(sent_to("/clusters/beta/", raw, PATH), "a=b")
        cookie = confined_cookie(raw, SCOPE, PATH)
        self.assertEqual(sent_to("/clusters/alpha/x", cookie, PATH), "a=b")


class FieldTests(SynchronousTestCase):
    """The other fields."""

    def test_dropped(self) -> None:
        """Fields that affect the whole origin are dropped in every spelling; the others stay in order."""
        lines = (
            b"HTTP/1.1 200 OK\r\nA: 1\r\nstrict-TRANSPORT-security: max-age=1\r\n"
            b"Alt-Svc:x\r\nSet-Cookie-X: y\r\nB:\r\n"
        )
        self.assertEqual(
            confined(lines, SCOPE, PATH), b"HTTP/1.1 200 OK\r\nA: 1\r\nSet-Cookie-X: y\r\nB:\r\n"
        )

    def test_found(self) -> None:
        """The fast search finds each of these fields, in every spelling."""
        for name in (*ORIGIN_FIELDS, b"set-cookie"):
            for spelt in (name, name.upper(), name.title(), name.swapcase()):
                lines = b"HTTP/1.1 200 OK\r\nAccept: a\r\n%b:x\r\n" % spelt
                self.assertIsNotNone(ACTS_ON_ORIGIN.search(lines), spelt)
                self.assertIsNotNone(TRAILERS.fullmatch(spelt))
        ordinary = (
            b"HTTP/1.1 200 Set-Cookie: x\r\nX-Set-Cookie: a\r\nSet-Cookies: b\r\nA: Set-Cookie: c\r\n\r\n"
        )
        self.assertIsNone(ACTS_ON_ORIGIN.search(ordinary))

    def test_trailers(self) -> None:
        """As trailers, such fields are rejected on the front door."""
        wire = b"0\r\nSet-Cookie: a=b\r\n\r\n"
        self.assertEqual(ChunkedBody().feed(wire), len(wire))
        self.assertRaises(BadBody, ChunkedBody(forbidden=TRAILERS).feed, wire)


class RelayTests(SynchronousTestCase):
    """Confinement in the relay."""

    def answer(self, wire: bytes, *fields: bytes, scope: bytes = SCOPE, step: int = 1 << 20) -> bytes:
        """Return the answer for the user to *wire*, sent in pieces of *step* bytes."""
        kit = Kit(scope=scope)
        kit.user.deliver(get(b"/clusters/alpha/apps/shop/cart", *fields))
        for start in range(0, len(wire), step):
            kit.pipe.deliver(wire[start : start + step])
        return kit.user.taken()

    def test_plain(self) -> None:
        """In an answer without other changes, the cookie is confined; all other bytes are the same."""
        for step in (1 << 20, 7):
            answer = self.answer(ok(b"{}", b"SET-cookie: a=b; Domain=x", b"Clear-Site-Data: *"), step=step)
            self.assertIn(b"\r\nSET-cookie: a=b; Path=/clusters/alpha/apps/shop/\r\n", answer)
            self.assertNotIn(b"Clear-Site-Data", answer)
            self.assertTrue(answer.endswith(b"\r\n\r\n{}"))
        self.assertEqual(self.answer(ok(b"{}", b"X: Set-Cookie: a=b")), ok(b"{}", b"X: Set-Cookie: a=b"))

    def test_ports(self) -> None:
        """A cluster's own port passes all of it."""
        wire = ok(b"{}", b"Set-Cookie: a=b; Domain=x", b"Strict-Transport-Security: max-age=1")
        self.assertEqual(self.answer(wire, scope=b""), wire)

    def test_interim_and_upgrade(self) -> None:
        """Interim answers and the answer to an upgrade are confined too."""
        early = b"HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=b\r\nLink: </x>\r\n\r\n"
        answer = self.answer(early + ok(b"{}", b"Set-Cookie: c=d; Path=/"))
        self.assertEqual(answer.count(b"; Path=/clusters/alpha/"), 2)
        switch = (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Set-Cookie: a=b; Path=/\r\nAlt-Svc: h3\r\n\r\nraw Set-Cookie: x"
        )
        answer = self.answer(switch, b"Connection: Upgrade", b"Upgrade: websocket")
        self.assertIn(b"a=b; Path=/clusters/alpha/\r\n", answer)
        self.assertNotIn(b"Alt-Svc", answer)
        self.assertTrue(answer.endswith(b"\r\n\r\nraw Set-Cookie: x"))

    def test_trailers(self) -> None:
        """An answer with such a trailer is cut."""
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        for more in (b"\r\n", b"Set-Cookie: c=d\r\n\r\n"):
            answer = self.answer(head + more + b"1\r\nx\r\n0\r\nSet-Cookie: a=b\r\n\r\n")
            self.assertNotIn(b"Set-Cookie: a=b", answer)
