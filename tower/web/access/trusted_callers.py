"""Facts about the requests of trusted callers, for the logs.

A trusted caller is a program that authenticates users itself, such as KubeSphere.  Its requests impersonate
users that it names, or use a token of an account of the member, or run as the caller itself.
"""

from __future__ import annotations

from typing import NamedTuple

from tower.http.requests import Fields
from tower.web.access.authentication.identity import MEMBER_ACCOUNT, AnyIdentity


class Acting(NamedTuple):
    """The identity that a trusted caller's request acts as.

    :ivar user: the impersonated user; empty: none.
    :ivar groups: of that user.
    :ivar by_token: whether the request uses a token of the member's, whose account only the member knows.
    :ivar is_caller: whether it is one of a trusted caller; else the token is its only credential.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    by_token: bool = False
    is_caller: bool = True


def acting(identity: AnyIdentity, fields: Fields) -> Acting | None:
    """Return what a request acts as; None: as its own user.

    A request that is rejected later is described as it was sent.
    """
    if not identity.is_trusted_caller:
        return None
    if identity is MEMBER_ACCOUNT:
        return Acting(by_token=True, is_caller=False)
    if not fields.foreign:
        return Acting(by_token=identity.member_token(fields.bearer) is not None)
    claims, _ = fields.split_claims()
    named = [(name.lower(), value.decode("utf-8", "backslashreplace")) for name, value in claims]
    users = [value for name, value in named if name == b"impersonate-user"]
    groups = tuple(value for name, value in named if name == b"impersonate-group")
    return Acting(users[0] if users else "", groups, identity.member_token(fields.bearer) is not None)
