"""Heads of a hostile proxy that would get past the agent, or around the API server behind it."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.agentbench import AgentBench
from tower.http.requests import HEAD_LIMIT

JANE = b"Impersonate-User: jane\r\nHost: x\r\n"

DOTS = (
    *(b"/..", b"/.", b"/../clusters/c-other/api", b"/api/../../c-other", b"/api/./v1", b"/%2e%2e/c-other"),
    *(b"/.%2E/c-other", b"/api/..%2fc-other", b"/api/%2e%2e%5cc-other", b"/api/..\\c-other", b"/api\\..\\.."),
    *(
        b"/api;/../c-other",
        b"/api/..;x/c-other",
        b"/..;/..;/c-other",
        b"/api/%252e%252e/c-other",
        b"/..?watch=1",
    ),
)

#: Valid for an API server, another path for some servers in front of one.
AMBIGUOUS = (b"//", b"//c-other/api", b"/api//v1", b"/api\\v1", b"/api%5cv1", b"/api/%2fv1")

FINE = (
    *(
        b"/api/v1/namespaces/x/services/y/proxy/a..b",
        b"/.well-known/openid-configuration",
        b"/a/...",
        b"/a/.b",
    ),
    *(b"/api?path=../..//\\", b"/api/v1/namespaces/x/services/y/proxy/a%2fb", b"/a;b=c/d", b"/a%20b"),
)


def request(*fields: bytes, target: bytes = b"/api") -> bytes:
    """Return a request of jane's."""
    return (
        b"GET " + target + b" HTTP/1.1\r\n" + JANE + b"".join(field + b"\r\n" for field in fields) + b"\r\n"
    )


class HeadCase(SynchronousTestCase):
    """An agent of a hostile proxy."""

    def start(self, path: str = "") -> AgentBench:
        """Start the agent of an API server that is behind *path*."""
        bench = AgentBench(path=path)
        self.addCleanup(bench.stop)
        return bench

    def refused(self, bench: AgentBench, words: str, *pieces: bytes, code: int = 403) -> None:
        """Check that the agent answers *code* and forwards nothing."""
        before = len(bench.server.heads)
        answered, body = bench.ask(*pieces)
        self.assertEqual(answered, code, pieces[0][:200])
        self.assertIn(words, json.loads(body)["message"])
        self.assertEqual(bench.server.heads[before:], [])


class LengthTests(HeadCase):
    def test_long_heads(self) -> None:
        """A head longer than 64 KiB is refused, in one piece or in several; one of 64 KiB passes."""
        bench = self.start()
        longest = request(b"X: " + b"a" * (HEAD_LIMIT - len(request(b"X: "))))
        longer = longest.replace(b"X: ", b"XX: ")
        for size in (40_000, 65_000, 65_536):
            self.refused(bench, "longer than 65536 B", longer[:size], longer[size:], code=431)
            self.refused(bench, "longer than 65536 B", longer[:size], longer[size:] + request(), code=431)
        pieces = b"GET /" + b"a" * 40_000, b"a" * 48_000 + request()[4:]
        self.refused(bench, "longer than 65536 B", *pieces, code=431)
        self.assertEqual(bench.ask(longest[:40_000], longest[40_000:]), (200, b"ok"))


class CredentialTests(HeadCase):
    def test_bearer_in_subprotocol(self) -> None:
        """A token in a WebSocket subprotocol is a credential like any other, in any spelling."""
        bench = self.start()
        token = b"base64url.bearer.authorization.k8s.io.dGhlLWVuZGVk"
        upgrade = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
        for fields in (
            (b"Sec-WebSocket-Protocol: v4.channel.k8s.io, " + token,),
            (b"Sec-WebSocket-Protocol: " + token + b",v4.channel.k8s.io",),
            (b"sec-websocket-protocol: v4.channel.k8s.io", b"SEC-WEBSOCKET-PROTOCOL: " + token),
            (b"Sec-WebSocket-Protocol: v4.channel.k8s.io,\t\t," + token.replace(b"bearer", b"Bearer"),),
            (b"Sec-WebSocket-Protocol: v4.channel.k8s.io,\xc2\xa0" + token,),
            (b"Proxy-Authorization: Bearer dGhlLWVuZGVk",),
            (b"authorization: Bearer dGhlLWVuZGVk",),
        ):
            for more in (upgrade, ()):
                self.refused(bench, "the request has a credential", request(*more, *fields))
        plain = request(b"Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io")
        self.assertEqual(bench.ask(plain), (200, b"ok"))


class PathTests(HeadCase):
    def test_dot_segments(self) -> None:
        """A path with a dot segment is refused in every spelling, with a server path and without."""
        for path in ("", "/k8s/clusters/c-abc"):
            bench = self.start(path)
            for target in DOTS:
                self.refused(bench, "dot segment", request(target=target))
            for target in FINE:
                self.assertEqual(bench.ask(request(target=target)), (200, b"ok"), target)
                line = b"GET " + path.encode() + target + b" HTTP/1.1\r\n"
                self.assertTrue(bench.server.heads[-1].startswith(line), bench.server.heads[-1])

    def test_ambiguous_paths(self) -> None:
        """Empty segments and backslashes are forwarded unchanged, but never behind a server path."""
        bench = self.start()
        for target in AMBIGUOUS:
            self.assertEqual(bench.ask(request(target=target)), (200, b"ok"), target)
            self.assertTrue(bench.server.heads[-1].startswith(b"GET " + target + b" HTTP/1.1\r\n"))
        bench = self.start("/k8s/clusters/c-abc")
        for target in AMBIGUOUS:
            self.refused(bench, "may leave the path", request(target=target))
