"""The one form in which requests go to an agent, which checks it line by line.

Request line, framing, ``Impersonate-User``, ``Impersonate-Group``..., the user's own fields, and the
proxy's: ``X-Forwarded-For``, ``X-Forwarded-Proto`` and ``Via`` (RFC 9110 section 7.6.3), then what an
upgrade needs.  What the user claims about forwarding is dropped; what he claims about identity is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tower.errors import Forbidden, Invalid
from tower.http.requests import Fields

# As long as a value may be and not be changed by whoever trims it; "system:masters " is not our jane.
_NAME = re.compile(rb"[!-~\x80-\xff](?:[ -~\x80-\xff]*[!-~\x80-\xff])?")


def identity_lines(user: str, groups: Sequence[str]) -> bytes:
    """Return the lines that say who asks.

    :raise Invalid: when a name cannot be said in a header field.
    """
    lines = [b"Impersonate-User: %b\r\n" % _name(user)]
    lines += [b"Impersonate-Group: %b\r\n" % _name(group) for group in groups]
    return b"".join(lines)


def forwarding_lines(peer: str) -> bytes:
    """Return the lines that say for whom the proxy asks, given the user's IP address."""
    return b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: https\r\nVia: 1.1 tower\r\n" % peer.encode("ascii")


def write_fields(fields: Fields, identity: bytes, forwarding: bytes) -> bytes:
    """Return the fields of a request as the agent takes them, the empty line included.

    :param identity: from `identity_lines`.
    :param forwarding: from `forwarding_lines`.
    :raise Forbidden: the request claims an identity of its own.
    """
    if fields.foreign:
        raise Forbidden(
            f"the request has a {fields.foreign.decode()} field: nobody acts as somebody else through Tower; "
            "leave out --as and --as-group, or ask for a kubeconfig of that user"
        )
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade if fields.upgrade else b""
    host = b"" if fields.host else b"Host: kubernetes\r\n"
    return b"".join((fields.framing, identity, fields.onward, host, forwarding, upgrade, b"\r\n"))


def plain_fields(fields: Fields, target: str, *, bearer: bool) -> bytes:
    """Return the fields of a request as they came, for whoever asks by himself who somebody is.

    Nothing is added, removed or refused but what is the connection's own: where the body ends, and how long
    the connection lives.

    :param target: the tunnel's; for requests that name no host.
    :param bearer: whether the request's bearer token passes.
    """
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade if fields.upgrade else b""
    host = b"" if fields.host else b"Host: %b\r\n" % target.encode("ascii")
    return b"".join((fields.framing, fields.end_to_end(bearer=bearer), host, upgrade, b"\r\n"))


def _name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogatepass")
    if _NAME.fullmatch(encoded) is None:
        raise Invalid(f"the name {name!r} cannot be sent to a cluster")
    return encoded
