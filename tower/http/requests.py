"""HTTP/1.1 request heads, parsed strictly and without I/O (RFC 9112).

A head that two parsers could read differently is rejected, never repaired: repairs enable request smuggling.
The head for the next hop is written from the parsed fields, in one form: ``Name: value``.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Final

from tower.errors import PeerError
from tower.http.bodies import CHUNKED
from tower.http.field_lines import TOKEN, field_lines, field_pairs
from tower.http.identity_fields import STANDARD, IdentityFields
from tower.http.paths import has_dot_segment

#: Longest head of a request or a response, B.
HEAD_LIMIT: Final = 64 * 1024

#: Begins the WebSocket subprotocol that carries a bearer token (Kubernetes 1.7 and later).
BEARER_PROTOCOL: Final = b"base64url.bearer.authorization.k8s.io."

_REQUEST_LINE: Final = re.compile(rb"(?!CONNECT )([A-Z]{1,24}) (/[!\"$-~]*) HTTP/1\.([01])\r\n")
# kubectl's subprotocol SPDY/3.1+portforward.k8s.io has a slash, which a token must not have; gorilla accepts
# it.
_LISTED: Final = TOKEN + b"/"
_HOST: Final = re.compile(rb"(?:[0-9A-Za-z._~%-]+|\[[0-9A-Fa-f:.%a-z]+\])(?::[0-9]{0,5})?")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_PROTOCOL: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?")

# `bytes` are searched for an integer a good deal faster than for one byte.
_PERCENT: Final = 0x25
_BACKSLASH: Final = 0x5C
_SEMICOLON: Final = 0x3B

# Fields that a head may have only once.
_SINGLE: Final = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"authorization",
        b"upgrade",
        b"expect",
        b"content-type",
    )
)

# Hop-by-hop (RFC 9110 section 7.6.1), or written by Tower itself for the next hop.
_HOP_BY_HOP: Final = (
    *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"upgrade"),
    *(b"host", b"content-length", b"transfer-encoding", b"authorization", b"sec-websocket-protocol"),
    *(b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"),
    b"x-real-ip",
)

# Hop-by-hop fields that always belong to one connection.
_OWN: Final = frozenset(_HOP_BY_HOP[:6]) | {b"content-length", b"transfer-encoding"}

# Fields that are not just passed on.
_SPECIAL: Final = _SINGLE.union(_HOP_BY_HOP)

# Fields that Connection must not name: dropping them would change the meaning of the request, or its target.
_END_TO_END: Final = re.compile(
    rb"host|content-.*|transfer-encoding|authorization|cookie|expect|sec-websocket-.*|"
    rb"impersonate[-_].*|x[-_]remote[-_].*"
)


class BadHead(PeerError):
    """A request that is not plain HTTP/1.1; `code` is the status to answer with before closing."""

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class Fields:
    """Parsed field lines of a request.  Immutable: equal lines share one.

    :ivar host: the Host, or empty (HTTP/1.0 only).
    :ivar body: length of the body, B, or `CHUNKED`.
    :ivar framing: the framing line for the next hop; empty without a body.
    :ivar close: the client wants the connection closed after the response.
    :ivar upgrade: the requested protocol; empty without ``Connection: upgrade``.
    :ivar expects: the client waits for ``100 Continue`` before the body.
    :ivar foreign: the first field that claims an identity (such as ``Impersonate-*``, ``X-Remote-*``), or
        empty.
    :ivar bearer: the bearer token, from Authorization or from a WebSocket subprotocol, or None.
    :ivar onward: the lines for the next hop.
    """

    __slots__ = (
        "_claims",
        "_found",
        "_lines",
        "_named",
        "_others",
        "bearer",
        "body",
        "close",
        "expects",
        "foreign",
        "framing",
        "host",
        "onward",
        "upgrade",
    )

    def __init__(self, block: bytes, claims: IdentityFields = STANDARD) -> None:
        """Parse *block*: the field lines and the empty line that ends them.

        :param claims: the fields that claim an identity.
        :raise BadHead: they are malformed or ambiguous.
        """
        lines = field_lines(block)
        pairs = None if lines is None else field_pairs(lines)
        if lines is None or pairs is None:
            raise BadHead(_fault_of_fields(block))
        self._lines = lines
        self._found: dict[bytes, bytes | None] = {}
        self._claims = claims
        self._others: Fields | None = None
        self.foreign = claims.first(block)
        special: dict[bytes, bytes] = {}
        onward = []
        for name, value in pairs:
            value = value.strip(b"\t ")
            lower = name.lower()
            if lower in _SPECIAL:
                if lower in special:
                    value = _joined(name, lower, special[lower], value)
                special[lower] = value
                if lower != b"content-type":
                    continue
            onward.append(b"%b: %b\r\n" % (name, value))
        field = special.get
        self.host = _checked_host(field(b"host"))
        self.body, self.framing = _framing(field(b"content-length"), field(b"transfer-encoding"))
        self.expects = _expects(field(b"expect"))
        options = _listed(field(b"connection", b"").lower())
        self.close = b"close" in options
        self.upgrade = _upgrade(field(b"upgrade")) if b"upgrade" in options else b""
        self.bearer, protocols = _bearer(field(b"authorization"), field(b"sec-websocket-protocol"))
        self._named = _named(options) if options else _NONE
        if self._named:
            onward = [line for line in onward if line.partition(b":")[0].lower() not in self._named]
        host = b"Host: %b\r\n" % self.host if self.host else b""
        expects = b"Expect: 100-continue\r\n" if self.expects else b""
        self.onward = b"".join((host, *onward, expects, protocols))

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of the field *name* (lower case), or None; remembered for equal requests."""
        if name in self._found:
            return self._found[name]
        found = self._found[name] = self._find(name)
        return found

    def _find(self, name: bytes) -> bytes | None:
        for line in self._lines:
            own, _, value = line.partition(b":")
            if own.lower() == name:
                return value.strip(b"\t ")
        return None

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield name (lower case) and value of each field."""
        for line in self._lines:
            name, _, value = line.partition(b":")
            yield name.lower(), value.strip(b"\t ")

    def without(self, drop: Callable[[bytes], bool]) -> Fields:
        """Return the fields but those whose name (lower case) *drop* accepts; remembered, for any *drop*."""
        if self._others is None:
            kept = (line for line in self._lines if not drop(line.partition(b":")[0].lower()))
            self._others = Fields(b"".join(b"%b\r\n" % line for line in kept) + b"\r\n", self._claims)
        return self._others

    def end_to_end(self, *, bearer: bool) -> bytes:
        """Return the lines for a next hop that authenticates users itself: all but those of this connection.

        :param bearer: whether bearer tokens are included.
        """
        lines = []
        for line in self._lines:
            name, _, value = line.partition(b":")
            lower, value = name.lower(), value.strip(b"\t ")
            if lower in _OWN or lower in self._named:
                continue
            if not bearer and lower == b"authorization" and _token(value) is not None:
                continue
            if not bearer and lower == b"sec-websocket-protocol":
                value = b", ".join(n for n in _listed(value) if not _carries_token(n))
                if not value:
                    continue
            lines.append(b"%b: %b\r\n" % (name, value))
        return b"".join(lines)

    def split_claims(self) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return name and value of each field that claims an identity, and the other lines of `onward`."""
        claims: list[tuple[bytes, bytes]] = []
        others = []
        for line in self.onward.splitlines(keepends=True):
            if self._claims.matches(line):
                name, _, value = line.partition(b": ")
                claims.append((name, value.rstrip(b"\r\n")))
            else:
                others.append(line)
        return claims, b"".join(others)

    @property
    def has_subprotocol_token(self) -> bool:
        """Whether a WebSocket subprotocol contains a bearer token."""
        return _carries_token(self.get(b"sec-websocket-protocol") or b"")

    def __repr__(self) -> str:
        """Omit the values: some are secret."""
        return f"Fields(host={self.host!r}, body={self.body})"


def _joined(name: bytes, lower: bytes, first: bytes, second: bytes) -> bytes:
    """Return the value of a repeated field.

    :raise BadHead: the field must not be repeated.
    """
    if lower in _SINGLE:
        raise BadHead(f"more than one {name.decode()}")
    return b"%b,%b" % (first, second)


class HeadReader:
    """Parses the request heads of one connection; field lines equal to the last are parsed once.

    :param claims: the fields that claim an identity.
    """

    __slots__ = ("_block", "_claims", "_fields")

    def __init__(self, claims: IdentityFields = STANDARD) -> None:
        self._claims = claims
        self._block = b""
        self._fields: Fields | None = None

    def read(self, head: bytes) -> tuple[bytes, bytes, int, Fields]:
        """Parse *head*, from the request line to the empty line: method, target, minor version, fields.

        :raise BadHead: it is not plain HTTP/1.1.
        """
        match = _REQUEST_LINE.match(head)
        if match is None:
            raise _fault_of_line(head)
        method, target, minor = match.groups()
        if (
            _PERCENT in target or _BACKSLASH in target or _SEMICOLON in target or target.find(b"/.") >= 0
        ) and has_dot_segment(target):
            raise BadHead("the path has a dot segment")
        block = head[match.end() :]
        if block == self._block and self._fields is not None:
            fields = self._fields
        else:
            fields = Fields(block, self._claims)
            self._block, self._fields = block, fields
        if minor == b"1":
            if not fields.host:
                raise BadHead("the request has no Host")
            return method, target, 1, fields
        if fields.body == CHUNKED or fields.upgrade:
            raise BadHead("HTTP/1.0 has neither Transfer-Encoding nor Upgrade")
        return method, target, 0, fields


def check_unfinished(head: bytes | bytearray, start: int = 0) -> None:
    """Reject the beginning of a head that cannot become valid; its bytes from *start* on are new.

    :raise BadHead: the head is too long, or a line has a wrong end.
    """
    if len(head) > HEAD_LIMIT:
        raise BadHead(f"the head of the request is longer than {HEAD_LIMIT} B", 431)
    # unauthenticated clients send long heads that never end: a regular expression takes ten times as long
    lines = head.count(b"\n", start)
    if lines and lines != head.count(b"\r\n", max(start - 1, 0), head.rfind(b"\n") + 1):
        raise BadHead("a line ends without CR")


def _fault_of_line(head: bytes) -> BadHead:
    line = head[: head.find(b"\r\n")]
    if not line.endswith((b" HTTP/1.1", b" HTTP/1.0")):
        return BadHead("the request line does not end with HTTP/1.1 or HTTP/1.0")
    if line.startswith(b"CONNECT "):
        return BadHead("CONNECT is not supported")
    return BadHead("the request line is not METHOD /path HTTP/1.1")


def _fault_of_fields(block: bytes) -> str:
    if re.search(rb"(?:\A|\n)[ \t]", block):
        return "a field is folded over two lines"
    if re.search(rb"(?:\A|\n)[^\r\n:]*[ \t]:", block):
        return "there is a blank before a colon"
    return "a field of the head is malformed"


def _listed(value: bytes) -> list[bytes]:
    """Return the members of a comma-separated list of tokens."""
    if not value:
        return []
    names = [part.strip(b"\t ") for part in value.split(b",")]
    if b"".join(names).translate(None, _LISTED):
        raise BadHead("a list of names is malformed")
    return [name for name in names if name]


def _checked_host(host: bytes | None) -> bytes:
    if host is not None and _HOST.fullmatch(host) is None:
        raise BadHead("the Host is not a host")
    return host or b""


def _framing(length: bytes | None, encoding: bytes | None) -> tuple[int, bytes]:
    """Return the length of the body, or `CHUNKED`, and the framing line for the next hop."""
    if encoding is not None:
        if length is not None:
            raise BadHead("both Content-Length and Transfer-Encoding")
        if encoding.lower() != b"chunked":
            raise BadHead("the only Transfer-Encoding is chunked", 501)
        return CHUNKED, b"Transfer-Encoding: chunked\r\n"
    if length is None:
        return 0, b""
    if _DIGITS.fullmatch(length) is None:
        raise BadHead("the Content-Length is not a number")
    return int(length), b"Content-Length: %b\r\n" % length


def _expects(value: bytes | None) -> bool:
    if value is None:
        return False
    if value.lower() != b"100-continue":
        raise BadHead("the only expectation is 100-continue", 417)
    return True


def _upgrade(value: bytes | None) -> bytes:
    """Return the requested protocol; upgrades to other HTTP versions and TLS are ignored."""
    if value is None or value.lower().startswith((b"h2", b"http", b"tls")):
        return b""
    if _PROTOCOL.fullmatch(value) is None:
        raise BadHead("Upgrade does not name one protocol")
    return value


def _bearer(authorization: bytes | None, protocols: bytes | None) -> tuple[bytes | None, bytes]:
    """Return the bearer token, and the line with the other WebSocket subprotocols."""
    token = None if authorization is None else _token(authorization)
    if protocols is None:
        return token, b""
    names = _listed(protocols)
    carriers = [name for name in names if _carries_token(name)]
    others = [name for name in names if not _carries_token(name)]
    line = b"Sec-WebSocket-Protocol: %b\r\n" % b", ".join(others)
    if not carriers:
        return token, line
    if len(carriers) > 1 or not others:
        raise BadHead(
            "a bearer token in Sec-WebSocket-Protocol comes once, and with another subprotocol", 401
        )
    encoded = carriers[0][len(BEARER_PROTOCOL) :].replace(b"+", b".")  # base64, but not base64url
    try:
        if not carriers[0].lower().startswith(BEARER_PROTOCOL):
            raise ValueError
        decoded = b64decode(encoded + b"=" * (-len(encoded) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadHead("the bearer token in Sec-WebSocket-Protocol is not base64url", 401) from None
    return token or decoded, line


def _carries_token(protocol: bytes) -> bool:
    """Return whether a WebSocket subprotocol contains a bearer token, or looks like it."""
    return BEARER_PROTOCOL.rstrip(b".") in protocol.lower()


def _token(authorization: bytes) -> bytes | None:
    """Return the bearer token in an Authorization value, if any."""
    scheme, _, rest = authorization.partition(b" ")
    return rest.strip() or None if scheme.lower() == b"bearer" else None


_NONE: Final[frozenset[bytes]] = frozenset()


def _named(options: list[bytes]) -> frozenset[bytes]:
    """Return the fields that Connection names and that are not passed on."""
    named = frozenset(options) - {b"close", b"keep-alive", b"upgrade"}
    for option in named:
        if _END_TO_END.fullmatch(option):
            raise BadHead(f"Connection must not name {option.decode()}")
    return named
