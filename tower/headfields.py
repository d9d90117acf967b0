"""The fields of a request for the API server, in the one form in which the proxy sends them.

They are read line by line and judged in plain code.  Whoever is not plainly somebody else than the agent, or
brings anything that could make him so, is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tower.errors import PeerError
from tower.systemidentities import AUTHENTICATED, SystemIdentities

_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VALUE = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_BLANKS = b" \t"

# Of a field in which several protocols could be named: no blank, no quote, no comma.
_PROTOCOL = bytes(range(0x21, 0x7F)).replace(b'"', b"").replace(b",", b"")
# A raw stream in which HTTP goes on (h2c) would take requests past this check.
_HTTP_IN_HTTP = (b"h2", b"http", b"tls")

_USER = b"Impersonate-User"
_GROUP = b"Impersonate-Group"
_UID = b"Impersonate-Uid"
_EXTRA = re.compile(rb"Impersonate-Extra-[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_ADDED = b"%b: %b" % (_GROUP, AUTHENTICATED.encode())

# Fields that say whose request it is; some servers take "_" for "-".
_IDENTITY = (b"impersonate-", b"x-remote-")
# Where the body ends and what an intermediary before the API server strips has its place, or none.
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_CREDENTIALS = frozenset((b"authorization", b"proxy-authorization"))
_PROTOCOLS = b"sec-websocket-protocol"
# Kubernetes takes a bearer token from such a WebSocket subprotocol.
_BEARER = b"base64url.bearer.authorization.k8s.io"
# No field of these passes as it is.
_PLACED = _FRAMING | _CREDENTIALS | {_PROTOCOLS, b"host", b"connection", b"upgrade"}

FORM = "the head of the request is not in the form that tower-v2 prescribes"
_CREDENTIAL = "the request carries a credential of its own; the agent adds its own and passes on no other"
_NO_USER = "the request names no user to act as (Impersonate-User); the agent's own rights are lent to nobody"
_TWO_USERS = "the request names more than one user to act as (Impersonate-User)"

#: How much of a name is shown, characters.
_SHOWN = 100


class BadFields(PeerError):
    """Fields with which a request is not sent on; the text quotes no credential."""


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


def check_fields(fields: bytes, identities: SystemIdentities, why_not: str) -> CheckedFields:
    """Read *fields*, which are the lines behind the framing with the empty line at the end.

    First comes one ``Impersonate-User``, then any ``Impersonate-Group``, ``-Uid`` and ``-Extra-…``, then the
    rest with one ``Host``.  A group that the API server adds by itself is left out.

    :param identities: the rule for users and groups of the cluster.
    :param why_not: the reason or the cure behind a refusal because of it; NAME stands for whom it is about.
    :raise BadFields: saying what is wrong.
    """
    lines = fields.split(b"\r\n")
    if fields.translate(None, _VALUE) != b"\r\n" * (len(lines) - 1) or lines[-2:] != [b"", b""]:
        raise BadFields(FORM)
    del lines[-2:]
    if not lines or not lines[0].startswith(_USER + b": "):
        raise BadFields(_without_user(lines))
    count = 0
    identity = []
    for line in lines:
        if not line.startswith(b"Impersonate-"):
            break
        if _is_sent(line, is_first=not count, identities=identities, why_not=why_not):
            identity.append(line)
        count += 1
    before, after = _check_rest(lines[count:])
    upgrade = any(line[:11].lower() == b"connection:" for line in (*before, *after))
    return CheckedFields(identity, before, after, upgrade)


def _without_user(lines: list[bytes]) -> str:
    names = {line.partition(b":")[0].strip(_BLANKS).lower() for line in lines}
    if names & _CREDENTIALS:
        return _CREDENTIAL
    return FORM if _USER.lower() in names else _NO_USER


def _is_sent(line: bytes, *, is_first: bool, identities: SystemIdentities, why_not: str) -> bool:
    """Return whether this line of an identity goes on; False leaves it out."""
    name, separator, value = line.partition(b": ")
    if name in (_USER, _GROUP):
        if name == _USER and not is_first:
            raise BadFields(_TWO_USERS)
        who = value.strip(_BLANKS)
        if not who:
            raise BadFields(_NO_USER if name == _USER else FORM)
        text = who.decode("utf-8", "surrogateescape")
        if identities.refuses(text):
            if line == _ADDED:
                return False
            shown = "".join(filter(str.isprintable, text[:_SHOWN]))
            cure = why_not.replace("NAME", shown)
            raise BadFields(f'the owner of this cluster lets nobody act as "{shown}"; {cure}')
        if who != value:  # the API server would take the blanks away
            raise BadFields(FORM)
    elif not separator or (name != _UID and not _EXTRA.fullmatch(name)):
        raise BadFields(FORM)
    return True


def _check_rest(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Check what names nobody; return the lines before ``Host`` and those behind it."""
    host = -1
    for number, line in enumerate(lines):
        name, separator, value = line.partition(b": ")
        if not name or not separator or name.translate(None, _TOKEN):
            raise BadFields(FORM)
        lower = name.lower()
        if lower in _PLACED:
            if name == b"Host" and host < 0:
                host = number
            else:
                _check_placed(lower, value)
        elif lower.replace(b"_", b"-").startswith(_IDENTITY):
            raise BadFields(_TWO_USERS if lower == _USER.lower() else FORM)
    if host < 0:
        raise BadFields(FORM)
    return lines[:host], lines[host + 1 :]


def _check_placed(lower: bytes, value: bytes) -> None:
    """Check a field that passes with some values only, or never."""
    if lower in _CREDENTIALS or (lower == _PROTOCOLS and _BEARER in value.lower()):
        raise BadFields(_CREDENTIAL)
    if lower == b"connection":
        good = value.lower() == b"upgrade"
    elif lower == b"upgrade":
        good = (
            value != b"" and not value.translate(None, _PROTOCOL)
            and not value.lower().startswith(_HTTP_IN_HTTP)
        )  # fmt: skip
    else:
        good = lower == _PROTOCOLS
    if not good:
        raise BadFields(FORM)
