"""Header fields of a member's answer that affect a whole host, confined to the member's own paths.

Browsers apply cookies by host and path (RFC 6265), and some other fields by host or origin alone.  The front
door serves many members under one name: there a member's cookies get a path below the member's prefix, and
fields without a path are dropped.  A cluster's own port passes all fields unchanged.
"""

from __future__ import annotations

import re

#: Fields that affect every path of an origin or of a host; they can only be dropped.
ORIGIN_FIELDS = frozenset(
    (
        b"accept-ch",
        b"accept-ch-lifetime",
        b"alt-svc",
        b"clear-site-data",
        b"critical-ch",
        b"expect-ct",
        b"nel",
        b"origin-agent-cluster",
        b"public-key-pins",
        b"public-key-pins-report-only",
        b"report-to",
        b"service-worker-allowed",
        b"set-cookie2",
        b"set-login",
        b"strict-transport-security",
        b"use-as-dictionary",
    )
)

_COOKIE = b"set-cookie"
_CONFINED = (_COOKIE, *sorted(ORIGIN_FIELDS))


def _letters(index: int) -> bytes:
    """Return a character class of the names' letters at *index*; most other fields do not match it."""
    letters = {name[index : index + 1] for name in _CONFINED}
    return b"[%b]" % b"".join(sorted(letters | {letter.upper() for letter in letters}))


#: Matches a line of a head that `confined` would change.
ACTS_ON_ORIGIN = re.compile(
    rb"\n(?=%b%b)(?i:%b):" % (_letters(0), _letters(1), b"|".join(map(re.escape, _CONFINED)))
)

#: Matches the name of such a field in trailers.
TRAILERS = re.compile(rb"(?i:%b)" % b"|".join(map(re.escape, _CONFINED)))

#: Attributes of a cookie that are kept.
_KEPT = frozenset((b"expires", b"httponly", b"max-age", b"partitioned", b"priority", b"samesite", b"secure"))

# Characters without a meaning in Set-Cookie.
_PATH = re.compile(rb"/[0-9A-Za-z!$&'()*+,\-./:=@_~%]*")
_DOT_SEGMENT = re.compile(rb"/(?:\.|%2e){1,2}(?:/|\Z)", re.IGNORECASE)


def confined(lines: bytes, scope: bytes, path: bytes) -> bytes:
    """Return a response's *lines* without the parts that affect paths outside *scope*.

    :param lines: status line and fields, each with its CRLF.
    :param scope: prefix of the member's own paths, without a final slash.
    :param path: of the request.
    """
    status, *fields = lines.split(b"\r\n")
    kept = [status]
    for line in fields:
        name, colon, value = line.partition(b":")
        lower = name.lower()
        if lower == _COOKIE:
            cookie = confined_cookie(value, scope, path)
            if cookie:
                kept.append(b"%b: %b" % (name, cookie))
        elif lower not in ORIGIN_FIELDS or not colon:
            kept.append(line)
    return b"\r\n".join(kept)


def confined_cookie(value: bytes, scope: bytes, path: bytes) -> bytes:
    """Return the value of a ``Set-Cookie``, confined to paths in *scope*; empty: drop the cookie.

    Attributes are read as browsers do (RFC 6265 section 5.2): the last ``Path`` counts, and an invalid one is
    ignored.  The default is the directory of *path* (section 5.1.4); it is made explicit, because for the
    cluster's root it would be the parent of *scope*.  A ``__Host-`` cookie requires the path ``/``, so it is
    dropped.
    """
    pair, *attributes = value.split(b";")
    pair = pair.strip(b"\t ")
    if not pair.strip(b"=\t ") or pair.count(b'"') % 2:
        return b""  # an unterminated quotation would hide the path from parsers of quoted strings
    if pair.lstrip(b"=\t ").lower().startswith(b"__host-"):
        return b""
    own, kept = b"", []
    for attribute in attributes:
        name, _, text = attribute.partition(b"=")
        lower = name.strip(b"\t ").lower()
        if lower == b"path":
            own = text.strip(b"\t ")
        elif lower in _KEPT and b'"' not in text:
            kept.append(attribute.strip(b"\t "))
    return b"; ".join((pair, b"Path=" + _confined_path(own, scope, path), *kept))


def _confined_path(own: bytes, scope: bytes, path: bytes) -> bytes:
    """Return the confined path of a cookie whose ``Path`` attribute is *own*."""
    root = scope + b"/"
    if not own.startswith(b"/"):
        own = path[: path.rfind(b"/") + 1]
        if not own.startswith(root):
            return root
    if own == scope or _PATH.fullmatch(own) is None or _DOT_SEGMENT.search(own):
        return root
    return own if own.startswith(root) else scope + own
