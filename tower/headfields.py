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

_USER = b"Impersonate-User"
_GROUP = b"Impersonate-Group"
_UID = b"Impersonate-Uid"
_EXTRA = re.compile(rb"Impersonate-Extra-[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

# The API server adds this group by itself.
_ADDED = b"%b: %b" % (_GROUP, AUTHENTICATED.encode())

_CREDENTIALS = frozenset((b"authorization", b"proxy-authorization"))
_PROTOCOLS = b"sec-websocket-protocol"
# Kubernetes takes a bearer token from such a WebSocket subprotocol.
_BEARER = b"base64url.bearer.authorization.k8s.io"

# Fields that bring a credential, say where the body ends, or what an intermediary before the API server strips
# (a field that Connection names): they have their place, or some values only, or none.
_PLACED = _CREDENTIALS | {
    *(b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade", _PROTOCOLS),
}

# What may name one protocol: no blank, no quote, no comma.
_PROTOCOL = bytes(range(0x21, 0x7F)).replace(b'"', b"").replace(b",", b"")
# A raw stream in which HTTP goes on (h2c) would take requests past this check.
_HTTP_IN_HTTP = (b"h2", b"http", b"tls")

#: What is said of whatever the proxy would not write.
FORM = "the head of the request is not in the form that tower-v2 prescribes"
_CREDENTIAL = "the request carries a credential of its own; the agent adds its own and passes on no other"
_NO_USER = "the request names no user to act as (Impersonate-User); the agent's own rights are lent to nobody"
_TWO_USERS = "the request names more than one user to act as (Impersonate-User)"

#: How much of a name is shown, characters.
_SHOWN = 100


class BadHead(PeerError):
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
    :raise BadHead: saying what is wrong.
    """
    lines = block.split(b"\r\n")
    if block.translate(None, _VALUE) != b"\r\n" * (len(lines) - 1) or lines[-2:] != [b"", b""]:
        raise BadHead(FORM)
    del lines[-2:]
    if not lines or not lines[0].startswith(_USER + b": "):
        raise BadHead(_without_user(lines))
    count = 0
    identity = []
    for line in lines:
        if not line.startswith(b"Impersonate-"):
            break
        if _is_sent(line, is_first=not count, identities=identities, why_not=why_not):
            identity.append(line)
        count += 1
    rest = lines[count:]
    host, upgrade = _check_rest(rest)
    return CheckedFields(identity, rest[:host], rest[host + 1 :], upgrade)


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
            raise BadHead(_TWO_USERS)
        who = value.strip(_BLANKS)
        if not who:
            raise BadHead(_NO_USER if name == _USER else FORM)
        text = who.decode("utf-8", "surrogateescape")
        if identities.refuses(text):
            if line == _ADDED:
                return False
            shown = "".join(filter(str.isprintable, text[:_SHOWN]))
            cure = why_not.replace("NAME", shown)
            raise BadHead(f'the owner of this cluster lets nobody act as "{shown}"; {cure}')
        if who != value:  # the API server would take the blanks away
            raise BadHead(FORM)
    elif not separator or (name != _UID and not _EXTRA.fullmatch(name)):
        raise BadHead(FORM)
    return True


def _check_rest(lines: list[bytes]) -> tuple[int, bool]:
    """Check what names nobody; return which line is ``Host``, and whether the request asks for an upgrade."""
    try:
        names = [name for name, _ in [line.split(b": ", 1) for line in lines]]
        host = names.index(b"Host")
    except ValueError:
        raise BadHead(FORM) from None
    joined = b"\n".join(names)
    if joined.translate(None, _TOKEN) != b"\n" * (len(names) - 1) or not all(names):
        raise BadHead(FORM)
    lowered = joined.lower().split(b"\n")
    placed = _PLACED.intersection(lowered)
    if len(placed) > 1:
        for name, line in zip(lowered, lines, strict=True):
            if name in placed:
                _check_placed(name, line.partition(b": ")[2])
    uniform = b"\n" + joined.lower().replace(b"_", b"-")  # some servers take "_" for "-"
    if b"\nimpersonate-" in uniform or b"\nx-remote-" in uniform:
        raise BadHead(_TWO_USERS if _USER.lower() in lowered else FORM)
    if lowered.count(b"host") != 1:
        raise BadHead(FORM)
    return host, b"connection" in placed


def _check_placed(name: bytes, value: bytes) -> None:
    """Check one of `_PLACED`; the caller has found ``Host``."""
    if name in _CREDENTIALS or (name == _PROTOCOLS and _BEARER in value.lower()):
        raise BadHead(_CREDENTIAL)
    if name == b"connection":
        good = value.lower() == b"upgrade"
    elif name == b"upgrade":
        good = bool(value) and not value.translate(None, _PROTOCOL)
        good = good and not value.lower().startswith(_HTTP_IN_HTTP)
    else:
        good = name in (b"host", _PROTOCOLS)
    if not good:
        raise BadHead(FORM)
