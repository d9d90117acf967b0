"""Identities: the users that requests were authenticated as."""

from __future__ import annotations

from math import inf
from typing import TypeAlias

import attrs

from tower.clusters.credentials import PREFIX, Credential
from tower.errors import Unauthorized
from tower.kube.connection_settings import claims_of_token

#: Longest bearer token that any method reads, B.
TOKEN_LIMIT = 8192

#: Additional facts about a user, by key, as in Kubernetes' UserInfo.
Extra: TypeAlias = "tuple[tuple[str, tuple[str, ...]], ...]"

_TOKEN_PREFIX = PREFIX.encode()

# Prefix of the subjects of service accounts' tokens.
_ACCOUNT = "system:serviceaccount:"

# Methods that read the client certificate, so that a bearer token may be for the target.
_BY_CERTIFICATE = ("x509", "request-header")


@attrs.frozen
class UserInfo:
    """A user as a member knows it, in Kubernetes' terms; the name is never empty."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = ()


@attrs.frozen
class Identity:
    """An authenticated user, whose name is never empty.

    :ivar credential: the presented one, if Tower issued it; else None.
    :ivar method: the method that authenticated the user; ``tower`` for such credentials.
    :ivar key: of the identity without such a credential: its sessions end together.
    :ivar expires: end of the identity without such a credential, s since the epoch.
    :ivar member: as the user is known in the member; None: by the same name and groups.
    """

    user: str
    groups: tuple[str, ...] = ()
    credential: Credential | None = attrs.field(default=None, repr=False)
    uid: str = ""
    extra: Extra = ()
    method: str = "tower"
    key: str = ""
    expires: float = inf
    member: UserInfo | None = None

    @property
    def session(self) -> str:
        """The ID of the credential or of the other identity: all sessions with it end together."""
        return self.key if self.credential is None else self.credential.id

    @property
    def term(self) -> tuple[float, float]:
        """Begin and end of its validity, s since the epoch; it may end earlier."""
        return (-inf, self.expires) if self.credential is None else self.credential.term

    @property
    def cluster(self) -> str:
        """The cluster that its credential is for; empty: none or several."""
        return "" if self.credential is None else self.credential.cluster

    @property
    def in_member(self) -> UserInfo:
        """The user as the member knows it."""
        return UserInfo(self.user, self.groups) if self.member is None else self.member

    def uses(self, bearer: bytes) -> bool:
        """Return whether a request's bearer token is for Tower, so that it must not be forwarded."""
        method = self.method if self.credential is None else self.credential.kind
        return method not in ("cert", *_BY_CERTIFICATE) or bearer.startswith(_TOKEN_PREFIX)

    @property
    def is_trusted_caller(self) -> bool:
        """Whether the user may act as others in the cluster, or with a token of the member's."""
        return self.credential is not None and self.credential.is_trusted_caller

    def member_token(self, bearer: bytes | None) -> bytes | None:
        """Return *bearer*, if it is a token of the member's that a trusted caller uses."""
        if bearer is None or not self.is_trusted_caller or self.uses(bearer):
            return None
        return bearer


@attrs.frozen
class AnonymousIdentity:
    """A client of a port without authentication; the only instance is `ANONYMOUS`.

    It cannot be impersonated, so it is only used with plain relays.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    credential: None = None
    session: str = ""
    in_member: UserInfo = UserInfo("")
    is_trusted_caller: bool = False

    def member_token(self, bearer: bytes | None) -> None:
        """Return None: the target authenticates the user from the user's own header fields."""

    def uses(self, bearer: bytes) -> bool:
        """Return False: Tower does not use the token."""
        return False


#: Set on requests by the routers of such ports.
ANONYMOUS = AnonymousIdentity()


@attrs.frozen
class AccountIdentity:
    """A client that only the member authenticates, by the token of one of its accounts; see `MEMBER_ACCOUNT`.

    Tower does not know the account, so it has no name here.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    credential: None = None
    session: str = ""
    in_member: UserInfo = UserInfo("")
    is_trusted_caller: bool = True

    def member_token(self, bearer: bytes | None) -> bytes:
        """Return *bearer*: without it the request would have no identity, or the agent's.

        :raise Unauthorized: there is none.
        """
        if bearer is None:
            raise Unauthorized("the request has no token", "no credential", "no-credential")
        return bearer

    def uses(self, bearer: bytes) -> bool:
        """Return False: the token is the member's."""
        return False


#: Set on requests by the router of ports that accept such tokens.
MEMBER_ACCOUNT = AccountIdentity()

AnyIdentity: TypeAlias = Identity | AnonymousIdentity | AccountIdentity


def is_account_token(bearer: bytes) -> bool:
    """Return whether *bearer* is a token that an API server issued to a service account; not verified."""
    if len(bearer) > TOKEN_LIMIT or bearer.startswith(_TOKEN_PREFIX):
        return False
    return str(claims_of_token(bearer).get("sub")).startswith(_ACCOUNT)
