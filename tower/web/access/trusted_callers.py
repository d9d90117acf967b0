"""Facts about the requests of trusted callers, for the logs.

A trusted caller is a program that authenticates users itself, such as KubeSphere.  Its requests impersonate
users that it names, or use a token of an account of the member, or run as the caller itself.
"""

from __future__ import annotations

from typing import NamedTuple

from tower.http.identity_fields import extra_key
from tower.http.requests import Fields
from tower.web.access.authentication.identity import MEMBER_ACCOUNT, AnyIdentity, Extra, Identity

_EXTRA = b"impersonate-extra-"


class Acting(NamedTuple):
    """The identity that a trusted caller's request acts as.

    :ivar user: the impersonated user; empty: none.
    :ivar groups: of that user.
    :ivar by_token: whether the request uses a token of the member's, whose account only the member knows.
    :ivar is_caller: whether it is one of a trusted caller; else the token is its only credential, or the
        sender has the right to act as the user.
    :ivar uid: of that user; also *extra*.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    by_token: bool = False
    is_caller: bool = True
    uid: str = ""
    extra: Extra = ()


def acting(identity: AnyIdentity, fields: Fields) -> Acting | None:
    """Return what a request acts as; None: as its own user.

    A request that is rejected later is described as it was sent.
    """
    if isinstance(identity, Identity) and identity.is_acting:
        return acted_by_right(identity)
    if not identity.is_trusted_caller:
        return None
    if identity is MEMBER_ACCOUNT:
        return Acting(by_token=True, is_caller=False)
    if not fields.foreign:
        return Acting(by_token=identity.member_token(fields.bearer) is not None)
    claims, _ = fields.split_claims()
    named = [(name.lower(), value.decode("utf-8", "backslashreplace")) for name, value in claims]
    users, uids, groups = (
        tuple(value for name, value in named if name == wanted)
        for wanted in (b"impersonate-user", b"impersonate-uid", b"impersonate-group")
    )
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in named:
        if name.startswith(_EXTRA):
            key = extra_key(name.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    return Acting(
        "".join(users[:1]),
        groups,
        identity.member_token(fields.bearer) is not None,
        uid="".join(uids[:1]),
        extra=tuple(sorted(extra.items())),
    )


def acted_by_right(identity: Identity) -> Acting:
    """Return what a user who acts as another one by right acts as: the names that rules see."""
    return Acting(identity.user, identity.groups, is_caller=False, uid=identity.uid, extra=identity.extra)
