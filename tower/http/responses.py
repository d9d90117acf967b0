"""HTTP/1.1 response heads, parsed strictly and without I/O (RFC 9112).

A cluster's response is sent on a connection that carries other responses afterwards, so its end must be
unambiguous: a response with two framings, or an unknown one, is rejected.
"""

from __future__ import annotations

import re
from typing import Final

from tower.errors import PeerError
from tower.http.bodies import CHUNKED, UNTIL_CLOSE
from tower.http.field_lines import field_lines, field_pairs
from tower.http.paths import has_dot_segment
from tower.http.requests import HEAD_LIMIT

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_VALUE: Final = rb"[\t -~\x80-\xff]*"

# The first letters of the few special fields are excluded; only fields with one of these letters are
# compared.  ``Connection: keep-alive`` holds for our connection too.  Each line has one match only, or a
# failure at the end would backtrack through all of them.
_PLAIN_FIELDS: Final = (
    rb"(?:[!#$%&'*+\-.^_`|~0-9ABD-JM-OQRSV-Zabd-jm-oqrsv-z]" + _TOKEN + rb"*:" + _VALUE + rb"\r\n"
    rb"|(?!(?i:content-length|transfer-encoding|connection|keep-alive|proxy-connection|upgrade|te|location):)"
    rb"[CKLPTUcklptu]" + _TOKEN + rb"*:" + _VALUE + rb"\r\n"
    rb"|[Cc]onnection: keep-alive\r\n)*"
)

#: A final response whose head is forwarded unchanged on a persistent connection; not 204, which must have no
#: framing field (RFC 9110 section 8.6).  Groups: status, Content-Length.
PLAIN: Final = re.compile(
    rb"HTTP/1\.1 (?!204)([2-5][0-9]{2})(?: " + _VALUE + rb")?\r\n"
    + _PLAIN_FIELDS
    + rb"(?:[Cc]ontent-[Ll]ength: ([0-9]{1,18})|[Tt]ransfer-[Ee]ncoding: chunked)\r\n"
    + _PLAIN_FIELDS
    + rb"\r\n"
)  # fmt: skip

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + _VALUE + rb"))?\r\n")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*:")
_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"upgrade",
        b"te",
        b"content-length",
        b"transfer-encoding",
    )
)
_NEVER_DROPPED: Final = frozenset(
    (b"close", b"keep-alive", b"upgrade", b"content-type", b"content-encoding", b"location")
)


class BadResponse(PeerError):
    """A response that is not plain HTTP/1.1."""


class ResponseHead:
    """The head of one response.

    :ivar body: length of the body, B, `CHUNKED` or `UNTIL_CLOSE`.
    :ivar close: the server closes its connection after the response.
    :ivar lines: status line and fields to forward, framing included, without ``Location`` and the empty line.
    """

    __slots__ = ("body", "close", "code", "lines", "location")

    def __init__(self, head: bytes, *, bodiless: bool) -> None:
        """Parse *head*, from the status line to the empty line; *bodiless*: it answers a HEAD.

        :raise BadResponse: it is malformed or ambiguous.
        """
        match = _STATUS_LINE.match(head)
        if match is None:
            raise BadResponse("the answer does not begin with an HTTP/1.1 status line")
        own_lines = field_lines(head[match.end() :])
        pairs = None if own_lines is None else field_pairs(own_lines)
        if pairs is None:
            raise BadResponse("the answer has a malformed field")
        minor, code, phrase = match.groups()
        self.code = int(code)
        self.location: bytes | None = None
        fields = [(name.lower(), name, value.strip(b"\t ")) for name, value in pairs]
        options = {
            option.strip(b"\t ").lower()
            for lower, _, value in fields
            if lower == b"connection"
            for option in value.split(b",")
        }
        self.close = b"close" in options or (minor == b"0" and b"keep-alive" not in options)
        self.body, framing = _framing(self.code, bodiless, fields)
        lines = [b"HTTP/1.1 %b %b\r\n" % (code, phrase or b"")]
        for lower, name, value in fields:
            if lower in _HOP_BY_HOP or (lower in options and lower not in _NEVER_DROPPED):
                continue
            if lower == b"location" and self.location is None:
                self.location = value
            elif lower != b"location":
                lines.append(b"%b: %b\r\n" % (name, value))
        if self.code == 101:
            lines.append(b"Connection: Upgrade\r\n")
            lines += [b"Upgrade: %b\r\n" % value for lower, _, value in fields if lower == b"upgrade"]
        lines.append(framing)
        self.lines = b"".join(lines)


def _framing(code: int, bodiless: bool, fields: list[tuple[bytes, bytes, bytes]]) -> tuple[int, bytes]:
    """Return the length of the body, `CHUNKED` or `UNTIL_CLOSE`, and the framing line."""
    lengths = [value for lower, _, value in fields if lower == b"content-length"]
    encodings = [value for lower, _, value in fields if lower == b"transfer-encoding"]
    if len(lengths) > 1 or len(encodings) > 1 or (lengths and encodings):
        raise BadResponse("the answer has two framings")
    line = b""
    body = UNTIL_CLOSE
    if lengths:
        if _DIGITS.fullmatch(lengths[0]) is None:
            raise BadResponse("the answer's Content-Length is not a number")
        body, line = int(lengths[0]), b"Content-Length: %b\r\n" % lengths[0]
    elif encodings:
        if encodings[0].lower() != b"chunked":
            raise BadResponse("the answer's Transfer-Encoding is not chunked")
        body, line = CHUNKED, b"Transfer-Encoding: chunked\r\n"
    if code < 200 or code == 204:
        return 0, b""  # RFC 9110 section 8.6: no framing field belongs here
    if bodiless or code == 304:
        return 0, line
    return body, line


def check_unfinished(head: bytes | bytearray) -> None:
    """Reject the beginning of a head that is too long.

    :raise BadResponse: it is longer than `HEAD_LIMIT`.
    """
    if len(head) > HEAD_LIMIT:
        raise BadResponse(f"the head of the answer is longer than {HEAD_LIMIT} B")


def rewritten_location(location: bytes, prefix: bytes, host: bytes, server: bytes = b"") -> bytes:
    """Return *location* as a URL of this server.

    :param prefix: path prefix of the cluster on this server.
    :param host: this server's name for the user (the request's Host).
    :param server: the agent's API server, ``HOST[:PORT][/PATH]``; empty if unknown.
    """
    own, slash, root = server.partition(b"/")
    root = slash + root
    if location.startswith(b"/"):
        return location if location.startswith(b"//") else prefix + (_below(location, root) or location)
    scheme, separator, rest = location.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        return location
    authority, slash, path = rest.partition(b"/")
    path = slash + path
    if authority.lower() == host.lower():
        return prefix + path or b"/"  # by the scheme that the user uses
    if own and authority.lower() == own.lower() and (inside := _below(path or b"/", root)):
        return prefix + inside
    return location


def leads_away(location: bytes, path: bytes, prefix: bytes) -> bool:
    """Return whether a client that follows *location*, rewritten, leaves the cluster.

    :param path: of the request.
    :param prefix: as in `rewritten_location`; empty: this server has no other cluster.
    """
    if location.startswith((b"//", b"/\\", b"\\")) or b"\t" in location or _SCHEME.match(location):
        return True
    if not prefix:
        return False
    if location.startswith(b"/"):
        return has_dot_segment(location.partition(b"#")[0])
    if location[:1] in (b"", b"?", b"#"):
        return False
    return not path.startswith(prefix + b"/") or has_dot_segment(b"/" + location.partition(b"#")[0])


def _below(path: bytes, root: bytes) -> bytes:
    """Return the part of *path* below *root*, with a leading slash; empty if *path* is not below it."""
    if path == root:
        return b"/"
    return path[len(root) :] if path.startswith(root + b"/") else b""
