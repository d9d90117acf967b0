"""The check of a request's header fields, which must be in the proxy's canonical form.

The fields are parsed line by line.  A request is rejected unless it impersonates exactly one user, and
nothing in it can change or bypass that.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from attrs import evolve, field, frozen

from tower.errors import PeerError
from tower.http.field_lines import field_lines, field_pairs
from tower.http.requests import BEARER_PROTOCOL
from tower.kube.system_identities import AUTHENTICATED, SystemIdentities

_BLANKS = b" \t"

#: A token of an account of the member (RFC 6750 section 2.1).
BEARER_TOKEN = re.compile(rb"[-A-Za-z0-9._~+/]{1,16384}={0,2}")

_USER = b"Impersonate-User"
_GROUP = b"Impersonate-Group"
_UID = b"Impersonate-Uid"
_EXTRA = b"Impersonate-Extra-"

# The API server adds this group itself.
_ADDED = AUTHENTICATED.encode("ascii")

_AUTHORIZATION = b"Authorization"
_BEARER_SCHEME = b"Bearer "
_CREDENTIALS = frozenset((b"authorization", b"proxy-authorization"))
_PROTOCOLS = b"sec-websocket-protocol"
# Go trims Unicode blanks, so a bearer token may begin anywhere in a list of subprotocols.
_BEARER = BEARER_PROTOCOL.rstrip(b".")

# Fields that carry a credential, frame the body, or make an intermediary strip fields (Connection): except
# for Host, they pass with some values only, or never.
_SPECIAL = _CREDENTIALS | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", _PROTOCOLS}

# Characters of a protocol name: no blank, no quote, no comma.
_PROTOCOL = bytes(range(0x21, 0x7F)).replace(b'"', b"").replace(b",", b"")
# In an upgrade to HTTP (h2c), further requests would bypass this check.
_HTTP_IN_HTTP = (b"h2", b"http", b"tls")

#: The error for heads that the proxy never sends.
FORM = "the request head is not in the canonical form of tower-v2"
_CREDENTIAL = "the request has a credential; the agent forwards requests with its own credential only"
_NO_USER = (
    "the request impersonates no user (Impersonate-User); the agent never uses its own rights for a request"
)
_TWO_IDENTITIES = (
    "the request has a credential and impersonates a user (Impersonate-User): send only one of them"
)
_TWO_USERS = "the request impersonates more than one user (Impersonate-User)"

#: Longest part of a name in an error, characters.
_SHOWN = 100


@frozen
class Upstream:
    """The values of an API server for heads.

    :ivar prefix: of all paths, without a trailing slash; usually empty.
    :ivar host_line: the `Host` field, with its line end.
    :ivar credential_line: the `Authorization` field, with its line end; empty with a client certificate.
    :ivar has_certificate: connections have a client certificate, which takes precedence over any token.
    """

    prefix: bytes
    host_line: bytes
    credential_line: bytes = field(repr=False)
    has_certificate: bool = field(default=False, kw_only=True)

    def without_credential(self) -> Upstream:
        """Return the values for a server that is not verified."""
        return evolve(self, credential_line=b"")


class RefusedHead(PeerError):
    """A rejected head; the text quotes no credential."""


class CheckedFields(NamedTuple):
    """The lines of accepted fields.

    :ivar identity: of the impersonated user, or the member's own token.
    :ivar before: fields before ``Host``.
    :ivar after: fields after ``Host``.
    :ivar upgrade: the request requests a protocol upgrade.
    :ivar has_token: the request has a token of the member's, which replaces the agent's credential.
    """

    identity: list[bytes]
    before: list[bytes]
    after: list[bytes]
    upgrade: bool
    has_token: bool = False


def check_fields(
    block: bytes, identities: SystemIdentities, why_not: str, member_tokens: str = _CREDENTIAL
) -> CheckedFields:
    """Check *block*: the lines after the framing, with the final empty line.

    Required order: one ``Impersonate-User``, any ``Impersonate-Group``, ``-Uid`` and ``-Extra-…``, then other
    fields with one ``Host``.  The group that the API server adds itself is dropped.

    If tokens of the member are allowed, one ``Authorization`` may replace all ``Impersonate-…`` fields.

    :param identities: the cluster's rule for system identities.
    :param why_not: reason or cure in rejections because of it; NAME is replaced by the user or group.
    :param member_tokens: why tokens of the member are not allowed; empty: they are.
    :raise RefusedHead: with the reason.
    """
    lines = field_lines(block)
    pairs = None if lines is None else field_pairs(lines, b": ")
    if lines is None or pairs is None:
        raise RefusedHead(FORM)
    names = [name for name, _ in pairs]
    lowered = [name.lower() for name in names]
    has_token = names[:1] == [_AUTHORIZATION]
    if has_token:
        _check_token(pairs[0][1], lowered, member_tokens)
    elif names[:1] != [_USER]:
        raise RefusedHead(_without_user(lowered))
    identity = lines[:1] if has_token else []
    count = len(identity)
    for (name, value), line in zip(pairs, lines, strict=True):
        if has_token or not name.startswith(b"Impersonate-"):
            break
        if _is_forwarded(name, value, is_first=not count, identities=identities, why_not=why_not):
            identity.append(line)
        count += 1
    _check_others(pairs[count:], lowered[count:])
    if b"Host" not in names:
        raise RefusedHead(FORM)
    host = names.index(b"Host")
    upgrade = b"connection" in lowered
    return CheckedFields(identity, lines[count:host], lines[host + 1 :], upgrade, has_token)


def _check_token(value: bytes, lowered: Collection[bytes], refusal: str) -> None:
    """Check the member's own token, whether it is allowed, and that it is the only claim of an identity."""
    if refusal:
        raise RefusedHead(refusal)
    if _USER.lower() in lowered:
        raise RefusedHead(_TWO_IDENTITIES)
    token = value.removeprefix(_BEARER_SCHEME)
    if token == value or BEARER_TOKEN.fullmatch(token) is None:
        raise RefusedHead(FORM)


def _without_user(lowered: Collection[bytes]) -> str:
    if not _CREDENTIALS.isdisjoint(lowered):
        return _CREDENTIAL
    return FORM if _USER.lower() in lowered else _NO_USER


def _is_forwarded(
    name: bytes, value: bytes, *, is_first: bool, identities: SystemIdentities, why_not: str
) -> bool:
    """Check an impersonation field; return False to drop it."""
    if name in (_USER, _GROUP):
        if name == _USER and not is_first:
            raise RefusedHead(_TWO_USERS)
        stripped = value.strip(_BLANKS)
        if not stripped:
            raise RefusedHead(_NO_USER if name == _USER else FORM)
        text = stripped.decode("utf-8", "surrogateescape")
        if identities.refuses(text):
            if name == _GROUP and value == _ADDED:
                return False
            shown = "".join(filter(str.isprintable, text[:_SHOWN]))
            cure = why_not.replace("NAME", shown)
            raise RefusedHead(f'the owner of this cluster does not allow users to act as "{shown}"; {cure}')
        if stripped != value:  # the API server would trim it
            raise RefusedHead(FORM)
    elif name != _UID and (name == _EXTRA or not name.startswith(_EXTRA)):
        raise RefusedHead(FORM)
    return True


def _check_others(pairs: list[list[bytes]], lowered: list[bytes]) -> None:
    """Check the fields that follow the identity; *lowered* has their names in lower case."""
    if not _SPECIAL.isdisjoint(lowered):
        for (_, value), name in zip(pairs, lowered, strict=True):
            if name in _SPECIAL:
                _check_special(name, value)
    uniform = b"\n".join([b"", *lowered]).replace(b"_", b"-")  # some servers treat "_" as "-"
    if b"\nimpersonate-" in uniform or b"\nx-remote-" in uniform:
        raise RefusedHead(_TWO_USERS if _USER.lower() in lowered else FORM)
    if lowered.count(b"host") != 1:
        raise RefusedHead(FORM)


def _check_special(name: bytes, value: bytes) -> None:
    """Check a field of `_SPECIAL`."""
    if name in _CREDENTIALS or (name == _PROTOCOLS and _BEARER in value.lower()):
        raise RefusedHead(_CREDENTIAL)
    if name == b"connection":
        good = value.lower() == b"upgrade"
    elif name == b"upgrade":
        good = bool(value) and not value.translate(None, _PROTOCOL)
        good = good and not value.lower().startswith(_HTTP_IN_HTTP)
    else:
        good = name == _PROTOCOLS
    if not good:
        raise RefusedHead(FORM)
