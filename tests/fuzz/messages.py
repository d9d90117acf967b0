"""Good messages of HTTP, and words that mean something in one, for the targets that read HTTP."""

from __future__ import annotations


def _message(text: str, body: bytes = b"") -> bytes:
    """Return a message; its lines are separated by ``|``."""
    return "\r\n".join([*text.split("|"), "", ""]).encode("latin-1") + body


_CHUNKED = b"3\r\nabc\r\n0\r\nA: b\r\n\r\n"

#: From users.
REQUESTS = (
    _message("GET /api?x=y HTTP/1.1|Host: tower:8443|Accept: */*|User-Agent: kubectl/v1.31"),
    _message("POST /a HTTP/1.1|host:a|Content-Length: 5|Content-Type: a/b|Expect: 100-continue", b"hello"),
    _message(
        "PUT /a/b HTTP/1.1|Host: [::1]:1|Transfer-Encoding: chunked|X-A: \xe4\t b ",
        b"1;x=y\r\na\r\n" + _CHUNKED,
    ),
    _message("GET / HTTP/1.0|Connection: keep-alive, X-Hop|X-Hop: 1|Cookie: a=b"),
    _message(
        "GET /exec HTTP/1.1|Host: a|Connection: Upgrade|Upgrade: SPDY/3.1|X-Stream-Protocol-Version: v4"
    ),
    _message(
        "GET /w HTTP/1.1|Host: a|Connection: keep-alive, Upgrade|Upgrade: websocket|Sec-WebSocket-Version: 13"
        "|Sec-WebSocket-Protocol: v5.channel.k8s.io|Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    ),
)

#: From the proxy, for the agent.
CANONICAL = (
    _message("GET /api HTTP/1.1|Impersonate-User: jane|Host: tower|A: b"),
    _message(
        "POST /api HTTP/1.1|Content-Length: 5|Impersonate-User: jane|Impersonate-Group: dev|Host: t", b"hello"
    ),
    _message(
        "PUT /api HTTP/1.1|Transfer-Encoding: chunked|Impersonate-User: jane|Impersonate-Extra-x: y|Accept: a"
        "|Host: tower|Via: 1.1 tower",
        _CHUNKED,
    ),
    _message("GET /e HTTP/1.1|Impersonate-User: j|Host: t|Connection: Upgrade|Upgrade: SPDY/3.1"),
)

#: From API servers.
RESPONSES = (
    _message("HTTP/1.1 200 OK|Content-Type: application/json|Content-Length: 5", b"hello"),
    _message("HTTP/1.1 201 Created|Transfer-Encoding: chunked|Date: x", _CHUNKED),
    _message("HTTP/1.0 302 Found|Location: https://tower:8443/x|Connection: keep-alive|Content-Length: 0"),
    _message("HTTP/1.1 304 Not Modified|ETag: a|Content-Length: 9"),
    _message("HTTP/1.1 200 OK|Connection: close|Keep-Alive: 5", b"until the end"),
    _message("HTTP/1.1 100 Continue") + _message("HTTP/1.1 204 No Content|X: y"),
    _message("HTTP/1.1 101 Switching Protocols|Connection: Upgrade|Upgrade: SPDY/3.1", b"raw bytes"),
)

_LINES = """\
Content-Length: 5
Transfer-Encoding: chunked
Host: b
Impersonate-User: root
Impersonate_User: a
Impersonate-Group: system:masters
Impersonate-Group: system:authenticated
X-Remote-User: root
Authorization: Bearer x
Connection: close
Connection: Upgrade
Upgrade: SPDY/3.1
Upgrade: h2c
Expect: 100-continue
Sec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io.YWJj
GET /x HTTP/1.1
HTTP/1.1 200 OK
"""

#: For all of them.
WORDS = (
    *(line.encode() + b"\r\n" for line in _LINES.splitlines()),
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b"\0", b"\xff", b"\x0b", b"\x1b", b":", b",", b";"),
    *b"system:node HTTP/1.0 HTTP/1.1 chunked %2e%2e/ /../ 0x5 +5 5,5 0\r\n\r\n".split(b" "),
    *b"system: kubeadm:cluster-admins %252e %2f %5c \\ ;/.. ..;a // ? Proxy-Authorization: bearer.".split(
        b" "
    ),
)

#: Bodies in chunks, and words for them.
CHUNKS = (
    b'3\r\nabc\r\nA;name="a;b"\r\n0123456789\r\n00\r\nX-Sum: 1\r\nY:\r\n\r\n',
    b"1\r\na\r\n0\r\n\r\nGET /",
    b"ff;a\r\n" + bytes(255) + b"\r\n0 \t\r\n\r\n",
)
CHUNK_WORDS = (
    *(b"\r\n", b"0\r\n\r\n", b"0\r\n", b";", b"\n", b"\r", b" ", b"\t", b"-"),
    *(b"FFFFFFFFFFFFFFF", b"Host: a\r\n", b"Trailer: a\r\n"),
)
