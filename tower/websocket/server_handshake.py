"""The server's answer to a WebSocket handshake (RFC 6455 section 4.2).  No I/O.

It accepts what Autobahn accepts, but ignores ``Origin``: agents are not browsers, and authenticate by key.
Autobahn's handshake takes five times as long, because it serves all of RFC 6455; it is the reference in the
tests.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection
from hashlib import sha1

from tower.errors import PeerError

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_REQUEST_LINE = re.compile(rb"GET /[!\"$-~]* HTTP/1\.1")
_KEY = re.compile(rb"[0-9A-Za-z+/]{22}==")

#: The fields that are read.
_READ = frozenset(
    (
        b"host",
        b"upgrade",
        b"connection",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
    )
)

_ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: %b\r\n\r\n"
)

_REFUSAL = (
    b"HTTP/1.1 %d %b\r\n%bConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
)
#: Length of an unknown subprotocol in errors, B.
_SHOWN = 40

_REASONS = {400: b"Bad Request", 426: b"Upgrade Required"}


class NoUpgrade(PeerError):
    """A request without a WebSocket handshake for one of our subprotocols; `code` is the status to send."""

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code

    def answer(self) -> bytes:
        """Return the response; the connection must be closed after it."""
        text = str(self).encode() + b"\n"
        more = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" if self.code == 426 else b""
        return _REFUSAL % (self.code, _REASONS[self.code], more, len(text), text)


def answer_upgrade(head: bytes, protocols: Collection[bytes]) -> tuple[bytes, bytes]:
    """Return the 101 response to a request for exactly one of *protocols*, and the subprotocol.

    :param head: of the request, including the empty line.
    :raise NoUpgrade: the request is anything else.
    """
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if _REQUEST_LINE.fullmatch(line) is None:
        raise NoUpgrade("a WebSocket handshake begins with GET and HTTP/1.1")
    found: dict[bytes, bytes] = {}
    for field in fields:
        name, _, value = field.partition(b":")
        name = name.lower()
        if name in _READ:
            value = value.strip(b"\t ")
            found[name] = b"%b,%b" % (found[name], value) if name in found else value
    host = found.get(b"host")
    if not host or b"," in host:
        raise NoUpgrade("a request must have one Host")
    if b"websocket" not in _names(found.get(b"upgrade", b"")):
        raise NoUpgrade("this endpoint is for WebSockets only", 426)
    if b"upgrade" not in _names(found.get(b"connection", b"")):
        raise NoUpgrade("Connection does not name Upgrade")
    if found.get(b"sec-websocket-version") != b"13":
        raise NoUpgrade("the WebSocket version must be 13", 426)
    key = found.get(b"sec-websocket-key", b"")
    if _KEY.fullmatch(key) is None:
        raise NoUpgrade("Sec-WebSocket-Key is not 16 bytes in base64")
    protocol = found.get(b"sec-websocket-protocol", b"")
    if protocol not in protocols:
        spoken = b" or ".join(protocols).decode()
        wanted = protocol[:_SHOWN].decode("ascii", "replace") or "nothing"
        raise NoUpgrade(f"this endpoint accepts the subprotocol {spoken}, not {wanted!r}")
    accept = b64encode(sha1(key + _GUID, usedforsecurity=False).digest())
    return _ANSWER % (accept, protocol), protocol


def _names(value: bytes) -> list[bytes]:
    return [name.strip(b"\t ") for name in value.lower().split(b",")]
