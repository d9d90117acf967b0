"""The canonical form of request heads, which agents check line by line.

Request line, framing, ``Impersonate-User``, ``Impersonate-Group``..., the user's fields, then the proxy's:
``X-Forwarded-For``, ``X-Forwarded-Proto``, ``Via`` (RFC 9110 section 7.6.3) and those of an upgrade.
Forwarding fields of the user are dropped; identity fields of the user are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tower.errors import Forbidden, Invalid
from tower.http.requests import Fields

# Without blanks at the ends, which API servers trim: "system:masters " must not become "system:masters".
_NAME = re.compile(rb"[!-~\x80-\xff](?:[ -~\x80-\xff]*[!-~\x80-\xff])?")


def identity_lines(user: str, groups: Sequence[str]) -> bytes:
    """Return the impersonation lines of a user.

    :raise Invalid: a name does not fit a header field.
    """
    lines = [b"Impersonate-User: %b\r\n" % _name(user)]
    lines += [b"Impersonate-Group: %b\r\n" % _name(group) for group in groups]
    return b"".join(lines)


def forwarding_lines(peer: str) -> bytes:
    """Return the forwarding lines for the user's IP address *peer*."""
    return b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: https\r\nVia: 1.1 tower\r\n" % peer.encode("ascii")


def write_fields(fields: Fields, identity: bytes, forwarding: bytes) -> bytes:
    """Return the fields of a request in canonical form, with the final empty line.

    :param identity: from `identity_lines`.
    :param forwarding: from `forwarding_lines`.
    :raise Forbidden: the request has identity fields.
    """
    if fields.foreign:
        raise Forbidden(
            f"the request has a {fields.foreign.decode()} field: users of Tower cannot impersonate others; "
            "omit --as and --as-group, or request a kubeconfig for that user"
        )
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade if fields.upgrade else b""
    host = b"" if fields.host else b"Host: kubernetes\r\n"
    return b"".join((fields.framing, identity, fields.onward, host, forwarding, upgrade, b"\r\n"))


def plain_fields(fields: Fields, target: str, *, bearer: bool) -> bytes:
    """Return the fields of a request unchanged, for targets that authenticate users themselves.

    Only hop-by-hop fields are changed: the body's framing and the connection's lifetime.

    :param target: host of requests without one.
    """
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade if fields.upgrade else b""
    host = b"" if fields.host else b"Host: %b\r\n" % target.encode("ascii")
    return b"".join((fields.framing, fields.end_to_end(bearer=bearer), host, upgrade, b"\r\n"))


def _name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogatepass")
    if _NAME.fullmatch(encoded) is None:
        raise Invalid(f"the name {name!r} cannot be sent to a cluster")
    return encoded
