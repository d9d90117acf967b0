"""Fields of a member's answer that act on a whole host, confined to the member's own paths.

Browsers keep cookies by host and path (RFC 6265), and some other fields by host or origin alone.  The front
door serves many members under one name, so there a member's cookies get a path below its own, and what
knows no path is dropped.  A port of one cluster passes everything on as it is.
"""

from __future__ import annotations

import re

#: Fields that act on every path of an origin, or of a host; nothing but leaving them out confines them.
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
    """Return a class of the letters that names have at *index*: few fields of an ordinary answer do."""
    letters = {name[index : index + 1] for name in _CONFINED}
    return b"[%b]" % b"".join(sorted(letters | {letter.upper() for letter in letters}))


#: Finds a line of a head that `confined` would change.
ACTS_ON_ORIGIN = re.compile(
    rb"\n(?=%b%b)(?i:%b):" % (_letters(0), _letters(1), b"|".join(map(re.escape, _CONFINED)))
)

#: The names of such fields, as trailers.
TRAILERS = re.compile(rb"(?i:%b)" % b"|".join(map(re.escape, _CONFINED)))

#: What a cookie keeps beside its path.
_KEPT = frozenset((b"expires", b"httponly", b"max-age", b"partitioned", b"priority", b"samesite", b"secure"))

# Characters that mean nothing to whoever reads a Set-Cookie, so that a path of them is one path.
_PATH = re.compile(rb"/[0-9A-Za-z!$&'()*+,\-./:=@_~%]*")
_DOT_SEGMENT = re.compile(rb"/(?:\.|%2e){1,2}(?:/|\Z)", re.IGNORECASE)


def confined(lines: bytes, scope: bytes, path: bytes) -> bytes:
    """Return a response's *lines* without what acts outside *scope*.

    :param lines: status line and fields, each with its CRLF.
    :param scope: the beginning of the member's own paths, without a slash at its end.
    :param path: that the user asked for.
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
    """Return the value of a ``Set-Cookie`` that reaches no path outside *scope*; empty when there is none.

    Attributes are read as browsers do (RFC 6265 section 5.2): the last ``Path`` counts, and one that is no
    path is none.  Without one it is the directory of *path* (section 5.1.4), which is written down, since
    for the cluster's root that would be the parent of *scope*.  The member's own paths begin below *scope*.
    A ``__Host-`` cookie has to have the path ``/``, so there is none here.
    """
    pair, *attributes = value.split(b";")
    pair = pair.strip(b"\t ")
    if not pair.strip(b"=\t ") or pair.count(b'"') % 2:
        return b""  # an open quotation would hide the path from those who heed quotations
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
    """Return the path of a cookie of which the member says that it is *own*."""
    root = scope + b"/"
    if not own.startswith(b"/"):
        own = path[: path.rfind(b"/") + 1]
        if not own.startswith(root):
            return root
    if own == scope or _PATH.fullmatch(own) is None or _DOT_SEGMENT.search(own):
        return root
    return own if own.startswith(root) else scope + own
