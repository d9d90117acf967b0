"""The canonical form of request heads, which agents check line by line.

Request line, framing, ``Impersonate-User``, ``Impersonate-Group``..., the user's fields, then the proxy's:
``X-Forwarded-For``, ``X-Forwarded-Proto``, ``Via`` (RFC 9110 section 7.6.3) and those of an upgrade.
Forwarding fields of the user are dropped; identity fields of the user are rejected.  Those of a trusted
caller replace its own identity, or a token of the member's does, as ``Authorization``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from tower.errors import Forbidden, Invalid
from tower.http.requests import Fields
from tower.kube.head_fields import BEARER_TOKEN

# Without blanks at the ends, which API servers trim: "system:masters " must not become "system:masters".
_NAME = re.compile(rb"[!-~\x80-\xff](?:[ -~\x80-\xff]*[!-~\x80-\xff])?")

_USER, _GROUP, _UID, _EXTRA = (b"impersonate-" + each for each in (b"user", b"group", b"uid", b"extra-"))
_CANONICAL = {_USER: b"Impersonate-User", _GROUP: b"Impersonate-Group", _UID: b"Impersonate-Uid"}

_FORWARDED_FOR = re.compile(rb"^x-forwarded-for: ([^\r\n]*)\r\n", re.IGNORECASE | re.MULTILINE)

# Characters of a field's name, in addition to letters, digits and "_.-~".
_KEY_CHARACTERS = "!#$&'+*^`|"

# Prefix of Tower's own names.
_RESERVED = b"tower:"

#: Longest part of a value in an error, characters.
_SHOWN = 100

_TWO_CLAIMS = "the request has a bearer token and impersonates a user (Impersonate-*): send only one of them"


def identity_lines(
    user: str, groups: Sequence[str], uid: str = "", extra: Iterable[tuple[str, Iterable[str]]] = ()
) -> bytes:
    """Return the impersonation lines of a user.

    :param extra: further facts, by key.

    :raise Invalid: a name does not fit a header field.
    """
    lines = [b"Impersonate-User: %b\r\n" % _name(user)]
    lines += [b"Impersonate-Group: %b\r\n" % _name(group) for group in groups]
    if uid:
        lines.append(b"Impersonate-Uid: %b\r\n" % _name(uid))
    for key, values in extra:
        name = quote(key.lower(), safe=_KEY_CHARACTERS).encode("ascii")
        lines += [b"Impersonate-Extra-%b: %b\r\n" % (name, _name(value)) for value in values]
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
    return _written(fields, identity, fields.onward, forwarding)


def write_acting_fields(fields: Fields, identity: bytes, forwarding: bytes) -> bytes:
    """Do the same for a request that acts as another user, in place of its own claims.

    :param identity: of that user, from `identity_lines`.
    """
    return _written(fields, identity, fields.split_claims()[1], forwarding)


def write_trusted_fields(fields: Fields, identity: bytes, forwarding: bytes, token: bytes | None) -> bytes:
    """Return the fields of a trusted caller's request in canonical form, with the final empty line.

    :param identity: of the caller itself, from `identity_lines`; used if the request claims no other.
    :param token: of an account of the member, which the request uses instead; None: none.
    :raise Forbidden: the request claims an identity in an unusual form, or two.
    """
    claims, others = fields.split_claims()
    if token is not None:
        if claims:
            raise Forbidden(_TWO_CLAIMS, "impersonation")
        if BEARER_TOKEN.fullmatch(token) is None:
            raise Forbidden("the bearer token has characters that tokens of accounts never have", "bad-token")
        identity = b"Authorization: Bearer %b\r\n" % token
    elif claims:
        identity = claimed_lines(claims)
    return _written(fields, identity, others, forwarding)


def _written(fields: Fields, identity: bytes, others: bytes, forwarding: bytes) -> bytes:
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade if fields.upgrade else b""
    host = b"" if fields.host else b"Host: kubernetes\r\n"
    return b"".join((fields.framing, identity, others, host, forwarding, upgrade, b"\r\n"))


def claimed_lines(claims: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the impersonation lines of a request that claims an identity with Kubernetes' fields.

    :raise Forbidden: a field is not one of them, a value is invalid, or there is not exactly one user.
    """
    lines: dict[bytes, list[bytes]] = {_USER: [], _GROUP: [], _UID: [], _EXTRA: []}
    for name, value in claims:
        lower = name.lower()
        known = _EXTRA if lower.startswith(_EXTRA) else lower
        if known not in lines or lower == _EXTRA:
            shown = name.decode("latin-1")
            raise Forbidden(f"the header {shown} is not accepted: omit it", "impersonation")
        if _NAME.fullmatch(value) is None or value.startswith(_RESERVED):
            shown = value[:_SHOWN].decode("latin-1")
            raise Forbidden(f"{name.decode('latin-1')} {shown!r} is not accepted", "impersonation")
        written = _CANONICAL.get(known) or b"Impersonate-Extra-%b" % name[len(_EXTRA) :]
        lines[known].append(b"%b: %b\r\n" % (written, value))
    if len(lines[_USER]) != 1 or len(lines[_UID]) > 1:
        raise Forbidden("a request impersonates exactly one user (Impersonate-User)", "impersonation")
    return b"".join(line for each in lines.values() for line in each)


def plain_fields(fields: Fields, target: str, *, bearer: bool, client: str = "") -> bytes:
    """Return the fields of a request unchanged, for targets that authenticate users themselves.

    Only hop-by-hop fields are changed: the body's framing and the connection's lifetime.

    :param target: host of requests without one.
    :param client: IP address to append to ``X-Forwarded-For``; empty: that field is not changed either.
    """
    upgrade = b"Connection: Upgrade\r\nUpgrade: %b\r\n" % fields.upgrade if fields.upgrade else b""
    host = b"" if fields.host else b"Host: %b\r\n" % target.encode("ascii")
    lines = fields.end_to_end(bearer=bearer)
    if client:
        lines = _with_client(lines, client.encode("ascii"))
    return b"".join((fields.framing, lines, host, upgrade, b"\r\n"))


def _with_client(lines: bytes, client: bytes) -> bytes:
    """Return *lines* with *client* as the last address of one ``X-Forwarded-For``, as Go's proxy does."""
    addresses = _FORWARDED_FOR.findall(lines)
    if addresses:
        lines = _FORWARDED_FOR.sub(b"", lines)
    return b"%bX-Forwarded-For: %b\r\n" % (lines, b", ".join([*filter(None, addresses), client]))


def _name(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogatepass")
    if _NAME.fullmatch(encoded) is None:
        raise Invalid(
            f"the name {name!r} cannot be sent to a cluster: use printable characters, without blanks at the "
            "ends"
        )
    return encoded
