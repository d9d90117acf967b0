"""Identities: the users that requests were authenticated as."""

from __future__ import annotations

from math import inf
from typing import TypeAlias

import attrs

from tower.clusters.credentials import PREFIX, Credential
from tower.errors import Unauthorized
from tower.kube.access.service_accounts import USER_PREFIX, groups_of_account
from tower.kube.connection_settings import claims_of_token
from tower.kube.system_identities import ANONYMOUS_USER, UNAUTHENTICATED_GROUP, all_groups

#: Longest bearer token that Tower or a file issues, B.
TOKEN_LIMIT = 8192

#: Longest bearer token that another program issues, B.
FOREIGN_TOKEN_LIMIT = 16 * 1024

#: Additional facts about a user, by key, as in Kubernetes' UserInfo.
Extra: TypeAlias = "tuple[tuple[str, tuple[str, ...]], ...]"

_TOKEN_PREFIX = PREFIX.encode()

# Methods that read the client certificate, so that a bearer token may be for the target.
_BY_CERTIFICATE = ("x509", "request-header")


@attrs.frozen(cache_hash=True)
class UserInfo:
    """A user as a member knows it, in Kubernetes' terms; the name is never empty."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = ()


def known_user(name: str, groups: tuple[str, ...], uid: str = "", extra: Extra = ()) -> UserInfo:
    """Return a user as rules name it: with the group of all authenticated users."""
    return UserInfo(name, all_groups(name, groups), uid, extra)


def implied_groups(name: str) -> tuple[str, ...]:
    """Return the groups that the front door gives a service account, or the anonymous user."""
    return (UNAUTHENTICATED_GROUP,) if name == ANONYMOUS_USER else groups_of_account(name)


@attrs.define(eq=False)
class Lease:
    """The time for which another authenticator's answer about a token counts.

    :ivar user: that the token has.
    :ivar asked: time of the last question, s since the epoch.
    :ivar until: end of the time; -inf: the token has another user now, or none.
    :ivar refusal: why the token does not have this user any more; None: it has.
    """

    token: bytes = attrs.field(repr=False)
    user: UserInfo
    asked: float
    until: float
    refusal: Unauthorized | None = None

    def counts(self, now: float) -> bool:
        """Return whether the last answer counts at *now*; not if the clock was set back since."""
        return self.asked <= now < self.until

    def end(self, refusal: Unauthorized) -> None:
        """Reject the token from now on."""
        self.refusal, self.until = refusal, -inf


@attrs.frozen
class PolicyEntry:
    """How access policies admitted a user to a cluster, for one kind of request.

    :ivar policies: names of those that permit the request.
    :ivar levels: those of the request, see `tower.clusters.policies.access_levels`; 0: the decision is for
        all requests to the target.
    :ivar target: name of the target.
    :ivar since: when this decision began to hold, s since the epoch.
    :ivar until: when it may change, s since the epoch.
    :ivar ttl: longest time that a connection may last, s; inf: any.
    """

    cluster: str
    policies: tuple[str, ...]
    levels: int
    target: str
    since: float
    until: float
    ttl: float = inf


@attrs.frozen
class Identity:
    """An authenticated user, whose name is never empty.

    :ivar credential: the presented one, if Tower issued it; else None.
    :ivar method: the method that authenticated the user; ``tower`` for such credentials.
    :ivar key: of the identity without such a credential: its sessions end together.
    :ivar expires: end of the identity without such a credential, s since the epoch.
    :ivar until: when further requests need another token, s since the epoch; requests in progress go on.
    :ivar scope: the only cluster that the token of a login session is for; empty: all that policies admit to.
    :ivar begins_sessions: whether it can only begin a login session, and enters no cluster.
    :ivar member: as the user is known in the member; None: by the same name and groups.
    :ivar entry: how access policies admitted the user; None: not by policies, or not yet.
    :ivar impersonator: the user who sent the request and acts as this one; None: it is this one.
    :ivar lease: of the token, if another program authenticated it; None: Tower did so itself.
    """

    user: str
    groups: tuple[str, ...] = ()
    credential: Credential | None = attrs.field(default=None, repr=False)
    uid: str = ""
    extra: Extra = ()
    method: str = "tower"
    key: str = ""
    expires: float = inf
    until: float = inf
    scope: str = ""
    begins_sessions: bool = False
    member: UserInfo | None = None
    entry: PolicyEntry | None = None
    impersonator: Identity | None = None
    lease: Lease | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def is_acting(self) -> bool:
        """Whether another user acts as this one."""
        return self.impersonator is not None

    @property
    def sender(self) -> Identity:
        """The user who sent the request, as admitted."""
        return self if self.impersonator is None else self.impersonator

    @property
    def session(self) -> str:
        """The ID of the credential or of the other identity: all sessions with it end together."""
        return self.key if self.credential is None else self.credential.id

    @property
    def term(self) -> tuple[float, float]:
        """Begin and end of its validity, s since the epoch; it may end earlier."""
        if self.credential is not None:
            return self.credential.term
        entry, end = self.entry, min(self.expires, self.until)
        return (-inf, end) if entry is None else (entry.since, min(end, entry.until))

    @property
    def cluster(self) -> str:
        """The only cluster that it is for; empty: none or several."""
        return self.scope if self.credential is None else self.credential.cluster

    @property
    def in_member(self) -> UserInfo:
        """The user as the member knows it."""
        return UserInfo(self.user, self.groups) if self.member is None else self.member

    @property
    def at_door(self) -> Identity:
        """The user who sent the request as the method found it, before access policies."""
        sender = self.sender
        return sender if sender.entry is None else attrs.evolve(sender, member=None, entry=None)

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
    is_acting: bool = False

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
    is_acting: bool = False

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
    return str(claims_of_token(bearer).get("sub")).startswith(USER_PREFIX)
