"""Heads of responses, read strictly and without I/O (RFC 9112).

A cluster's answer goes to a connection on which answers of others follow, so nobody but us decides where
it ends: what is framed in two ways, or in none we know, is no answer.
"""

from __future__ import annotations

import re

from tower.errors import PeerError
from tower.http.bodies import CHUNKED, UNTIL_CLOSE
from tower.http.field_lines import field_lines, field_pairs
from tower.http.requests import HEAD_LIMIT

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_VALUE = rb"[\t -~\x80-\xff]*"

# Most fields begin with another letter than the few that mean something here; the rest is looked at.
# ``Connection: keep-alive`` is as true of our connection as of the one it came on.  A line is matched in one
# way only, or what fails at the end would be tried in all.
_PLAIN_FIELDS = (
    rb"(?:[!#$%&'*+\-.^_`|~0-9ABD-JM-OQRSV-Zabd-jm-oqrsv-z]" + _TOKEN + rb"*:" + _VALUE + rb"\r\n"
    rb"|(?!(?i:content-length|transfer-encoding|connection|keep-alive|proxy-connection|upgrade|te|location):)"
    rb"[CKLPTUcklptu]" + _TOKEN + rb"*:" + _VALUE + rb"\r\n"
    rb"|[Cc]onnection: keep-alive\r\n)*"
)

#: A final response whose head goes on as it is on a connection that stays open; 204 has no framing field
#: (RFC 9110 section 8.6), so one that has goes no such way.  Groups: status, Content-Length.
PLAIN = re.compile(
    rb"HTTP/1\.1 (?!204)([2-5][0-9]{2})(?: " + _VALUE + rb")?\r\n"
    + _PLAIN_FIELDS
    + rb"(?:[Cc]ontent-[Ll]ength: ([0-9]{1,18})|[Tt]ransfer-[Ee]ncoding: chunked)\r\n"
    + _PLAIN_FIELDS
    + rb"\r\n"
)  # fmt: skip

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: (" + _VALUE + rb"))?\r\n")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_HOP_BY_HOP = frozenset(
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
_NEVER_DROPPED = frozenset(
    (b"close", b"keep-alive", b"upgrade", b"content-type", b"content-encoding", b"location")
)


class BadResponse(PeerError):
    """A response that is not plain HTTP/1.1."""


class ResponseHead:
    """The head of one response.

    :ivar code: the status.
    :ivar body: length of the body, B, `CHUNKED` or `UNTIL_CLOSE`.
    :ivar close: the connection it came on ends after it.
    :ivar lines: status line and fields as they go on, framing included, without the empty line.
    :ivar location: value of ``Location``; its line is *not* among the lines.
    """

    __slots__ = ("body", "close", "code", "lines", "location")

    def __init__(self, head: bytes, *, bodiless: bool) -> None:
        """Read *head*, from the status line to the empty line.

        :param bodiless: it answers a HEAD.
        :raise BadResponse: when it is not plain.
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
    """Return where the body ends and the line that says so."""
    lengths = [value for lower, _, value in fields if lower == b"content-length"]
    encodings = [value for lower, _, value in fields if lower == b"transfer-encoding"]
    if len(lengths) > 1 or len(encodings) > 1 or (lengths and encodings):
        raise BadResponse("the answer is framed in two ways")
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
    """Refuse the beginning of a head that is too long already.

    :raise BadResponse: so that nobody keeps all of it.
    """
    if len(head) > HEAD_LIMIT:
        raise BadResponse(f"the head of the answer is longer than {HEAD_LIMIT} B")


def rewritten_location(location: bytes, prefix: bytes, host: bytes, server: bytes = b"") -> bytes:
    """Return *location* as the user has to ask for it.

    :param prefix: what stands before the cluster's paths, for the user.
    :param host: what the user calls this server (the request's Host).
    :param server: what the agent calls its API server, ``HOST[:PORT][/PATH]``; empty when it did not say.
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
        return b"%b://%b%b%b" % (scheme, authority, prefix, path)
    if own and authority.lower() == own.lower() and (inside := _below(path or b"/", root)):
        return prefix + inside
    return location


def _below(path: bytes, root: bytes) -> bytes:
    """Return what follows *root* in *path*, with a slash in front; empty when that is elsewhere."""
    if path == root:
        return b"/"
    return path[len(root) :] if path.startswith(root + b"/") else b""
