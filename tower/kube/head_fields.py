"""The fields of a request for the API server, in the one form in which the proxy sends them.

They are read line by line and judged in plain code.  Whoever is not plainly somebody else than the agent, or
brings anything that could make him so, is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tower.errors import PeerError
from tower.http.field_lines import field_lines, field_pairs
from tower.http.requests import BEARER_PROTOCOL
from tower.kube.system_identities import AUTHENTICATED, SystemIdentities

_BLANKS = b" \t"

_USER = b"Impersonate-User"
_GROUP = b"Impersonate-Group"
_UID = b"Impersonate-Uid"
_EXTRA = b"Impersonate-Extra-"

# The API server adds this group by itself.
_ADDED = AUTHENTICATED.encode("ascii")

_CREDENTIALS = frozenset((b"authorization", b"proxy-authorization"))
_PROTOCOLS = b"sec-websocket-protocol"
# Go trims what Unicode calls a blank, so a bearer token may begin anywhere in a list of subprotocols.
_BEARER = BEARER_PROTOCOL.rstrip(b".")

# Fields that bring a credential, say where the body ends, or what an intermediary before the API server
# strips (a field that Connection names): beside Host they pass with some values only, or never.
_SPECIAL = _CREDENTIALS | {b"content-length", b"transfer-encoding", b"connection", b"upgrade", _PROTOCOLS}

# What may name one protocol: no blank, no quote, no comma.
_PROTOCOL = bytes(range(0x21, 0x7F)).replace(b'"', b"").replace(b",", b"")
# A raw stream in which HTTP goes on (h2c) would take requests past this check.
_HTTP_IN_HTTP = (b"h2", b"http", b"tls")

#: What is said of whatever the proxy would not write.
FORM = "the head of the request is not in the form that tower-v2 prescribes"
_CREDENTIAL = "the request carries a credential of its own; the agent adds its own and passes on no other"
_NO_USER = (
    "the request names no user to act as (Impersonate-User); "
    "the agent never uses its own rights for a request"
)
_TWO_USERS = "the request names more than one user to act as (Impersonate-User)"

#: How much of a name is shown, characters.
_SHOWN = 100


class RefusedHead(PeerError):
    """A head that is not sent on; the text quotes no credential."""


class CheckedFields(NamedTuple):
    """Fields that may be sent on, as lines.

    :ivar identity: whom to act as.
    :ivar before: what is before ``Host``.
    :ivar after: what is behind it.
    :ivar upgrade: the connection shall become another one.
    """

    identity: list[bytes]
    before: list[bytes]
    after: list[bytes]
    upgrade: bool


def check_fields(block: bytes, identities: SystemIdentities, why_not: str) -> CheckedFields:
    """Read *block*, which is the lines behind the framing with the empty line at the end.

    First comes one ``Impersonate-User``, then any ``Impersonate-Group``, ``-Uid`` and ``-Extra-…``, then the
    rest with one ``Host``.  A group that the API server adds by itself is left out.

    :param identities: the rule for users and groups of the cluster.
    :param why_not: the reason or the cure behind a refusal because of it; NAME stands for whom it is about.
    :raise RefusedHead: saying what is wrong.
    """
    lines = field_lines(block)
    pairs = None if lines is None else field_pairs(lines, b": ")
    if lines is None or pairs is None:
        raise RefusedHead(FORM)
    names = [name for name, _ in pairs]
    lowered = [name.lower() for name in names]
    if names[:1] != [_USER]:
        raise RefusedHead(_without_user(lowered))
    identity = []
    count = 0
    for (name, value), line in zip(pairs, lines, strict=True):
        if not name.startswith(b"Impersonate-"):
            break
        if _is_sent(name, value, is_first=not count, identities=identities, why_not=why_not):
            identity.append(line)
        count += 1
    _check_rest(pairs[count:], lowered[count:])
    if b"Host" not in names:
        raise RefusedHead(FORM)
    host = names.index(b"Host")
    return CheckedFields(identity, lines[count:host], lines[host + 1 :], b"connection" in lowered)


def _without_user(lowered: Collection[bytes]) -> str:
    if not _CREDENTIALS.isdisjoint(lowered):
        return _CREDENTIAL
    return FORM if _USER.lower() in lowered else _NO_USER


def _is_sent(
    name: bytes, value: bytes, *, is_first: bool, identities: SystemIdentities, why_not: str
) -> bool:
    """Return whether this field of an identity goes on; False leaves it out."""
    if name in (_USER, _GROUP):
        if name == _USER and not is_first:
            raise RefusedHead(_TWO_USERS)
        who = value.strip(_BLANKS)
        if not who:
            raise RefusedHead(_NO_USER if name == _USER else FORM)
        text = who.decode("utf-8", "surrogateescape")
        if identities.refuses(text):
            if name == _GROUP and value == _ADDED:
                return False
            shown = "".join(filter(str.isprintable, text[:_SHOWN]))
            cure = why_not.replace("NAME", shown)
            raise RefusedHead(f'the owner of this cluster does not allow users to act as "{shown}"; {cure}')
        if who != value:  # the API server would take the blanks away
            raise RefusedHead(FORM)
    elif name != _UID and (name == _EXTRA or not name.startswith(_EXTRA)):
        raise RefusedHead(FORM)
    return True


def _check_rest(pairs: list[list[bytes]], lowered: list[bytes]) -> None:
    """Check what names nobody, *lowered* being the names in small letters."""
    if not _SPECIAL.isdisjoint(lowered):
        for (_, value), name in zip(pairs, lowered, strict=True):
            if name in _SPECIAL:
                _check_special(name, value)
    uniform = b"\n".join([b"", *lowered]).replace(b"_", b"-")  # some servers take "_" for "-"
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
