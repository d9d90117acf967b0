"""Authentication and authorization of users with credentials that Tower issued.

A client presents a certificate (known by its digest) or a bearer token; anonymous requests are rejected.  A
connection caches the `Identity`; `Authenticator.check`, a look-up in a dictionary, runs before each request,
so that expiry and revocation also apply to kept-alive connections and resumed TLS sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import ADMINS, PREFIX, Credential, Credentials
from tower.errors import Forbidden, Invalid, Unauthorized
from tower.kube.connection_settings import claims_of_token
from tower.kube.system_identities import AUTHENTICATED, NONE_ALLOWED, SystemIdentities
from tower.kube.system_identities import PREFIX as _SYSTEM

#: Longest bearer token that is looked up, B.
TOKEN_LIMIT = 8192

#: Maximum number of groups of a credential; each is a header of every request.
GROUPS_LIMIT = 64

# Prefix of names that Tower reserves.
_OWN = "tower:"

_TOKEN_PREFIX = PREFIX.encode()

# Prefix of the subjects of service accounts' tokens.
_ACCOUNT = "system:serviceaccount:"

# Kubernetes adds this group to every user, so it grants nothing more.
_EVERY_USER = ("group", AUTHENTICATED)


@attrs.frozen
class Identity:
    """An authenticated user, whose name is never empty, and the presented credential."""

    user: str
    groups: tuple[str, ...]
    credential: Credential = attrs.field(repr=False)

    def uses(self, bearer: bytes) -> bool:
        """Return whether a request's bearer token is for Tower, so that it must not be forwarded."""
        return self.credential.kind != "cert" or bearer.startswith(_TOKEN_PREFIX)

    @property
    def is_trusted_caller(self) -> bool:
        """Whether the user may act as others in the cluster, or with a token of the member's."""
        return self.credential.is_trusted_caller

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


class Authenticates(Protocol):
    """An authentication method of the filter chain; others than `Authenticator` (OIDC) may need time."""

    def authenticate(self, certificate: bytes | None, bearer: bytes | None) -> Identity | Deferred[Identity]:
        """Return the user with these credentials; see `Authenticator.authenticate`."""

    def check(self, identity: Identity) -> None:
        """Raise `Unauthorized` unless *identity* is still valid."""


class Authenticator:
    """Authenticates users by the credentials that Tower issued; *clock* counts from the epoch."""

    def __init__(self, credentials: Credentials, clock: IReactorTime) -> None:
        self._credentials = credentials
        self._clock = clock

    def authenticate(self, certificate: bytes | None, bearer: bytes | None) -> Identity:
        """Return the user of this certificate (DER, verified by TLS) or, if it is not valid, of this token.

        :raise Unauthorized: with a text for the client; `Unauthorized.reason` is for the log.
        """
        refusal: Unauthorized | None = None
        for what, secret in (("client certificate", certificate), ("bearer token", bearer)):
            if secret is None:
                continue
            try:
                return self._known(what, secret)
            except Unauthorized as e:
                refusal = refusal or e
        raise refusal or Unauthorized(
            "no credential was sent: use a kubeconfig made by 'tower kubeconfig CLUSTER --user NAME'",
            "no credential",
            "no-credential",
        )

    def check(self, identity: Identity) -> None:
        """Check that *identity*, cached on a connection, is still valid.

        :raise Unauthorized: its credential has expired, or was revoked or removed.
        """
        credential = self._credentials.find(identity.credential.digest)
        if credential is None or not credential.valid(self._clock.seconds()):
            raise self._refusal(credential, identity.credential)

    def _known(self, what: str, secret: bytes) -> Identity:
        if len(secret) > TOKEN_LIMIT:
            raise Unauthorized(
                f"the {what} is longer than any that Tower issues: use an unchanged kubeconfig",
                f"{what} of {len(secret)} B",
                "unknown",
            )
        digest = hashlib.sha256(secret).hexdigest()
        credential = self._credentials.find(digest)
        if credential is None:
            raise Unauthorized(
                f"the {what} is unknown: it was issued by another Tower, its cluster was removed, "
                "or it expired long ago; request a new kubeconfig",
                f"unknown {what}",
                "unknown",
            )
        if not credential.valid(self._clock.seconds()):
            raise self._refusal(credential, credential)
        return Identity(credential.user, credential.groups, credential)

    def _refusal(self, kept: Credential | None, shown: Credential) -> Unauthorized:
        """Return why a credential is not valid, from its current record and the one when it was presented."""
        what, now = _described(shown), self._clock.seconds()
        if kept is not None and kept.revoked:
            text = f"{what} was revoked: request a new kubeconfig"
            return Unauthorized(text, f"{shown.id} was revoked", "revoked")
        if now >= shown.expires:
            end = datetime.fromtimestamp(shown.expires, UTC)
            return Unauthorized(
                f"{what} expired at {end:%Y-%m-%dT%H:%M:%SZ}: request a new kubeconfig",
                f"{shown.id} expired",
                "expired",
            )
        if kept is None:
            return Unauthorized(
                f"{what} was removed, or its cluster was: request a new kubeconfig",
                f"{shown.id} was removed",
                "removed",
            )
        return Unauthorized(
            f"{what} was issued in the future: the proxy's clock was set back; request a new kubeconfig",
            f"{shown.id} was issued in the future",
            "not-yet-valid",
        )


def _described(credential: Credential) -> str:
    scope = f"cluster {credential.cluster}" if credential.cluster else "Tower's own API"
    return f"the credential of {credential.user} for {scope}"


def authorize_cluster(identity: Identity, name: str, uid: str) -> None:
    """Check that *identity* may use the cluster *name*, which now has this *uid*.

    :raise Forbidden: its credential is for another cluster, or for Tower's own API.
    """
    credential = identity.credential
    if credential.cluster_uid != uid or credential.cluster != name or not uid:
        scope = f"cluster {credential.cluster}" if credential.cluster else "Tower's own API"
        if credential.cluster == name:
            scope = f"an earlier cluster {name}"
        raise Forbidden(
            f"the credential of {identity.user} is for {scope} and is not valid for cluster {name}: "
            f"request a kubeconfig for cluster {name}",
            "other-cluster",
        )


def authorize_api(identity: Identity) -> None:
    """Check that *identity* may use Tower's own API.

    :raise Forbidden: its credential is for a cluster, or it is not an administrator's.
    """
    if identity.credential.cluster or identity.credential.cluster_uid:
        raise Forbidden(
            f"the credential of {identity.user} is for cluster {identity.credential.cluster} "
            "and is not valid for Tower's own API: use an administrator's kubeconfig",
            "other-cluster",
        )
    if ADMINS not in identity.groups:
        raise Forbidden(
            f"{identity.user} is not in the group {ADMINS}, which Tower's own API requires: "
            "use an administrator's kubeconfig",
            "not-administrator",
        )


def authorize_identity(
    identity: Identity, cluster: str, identities: SystemIdentities, *, is_ours: bool = False
) -> None:
    """Reject reserved names, also in credentials that an earlier version issued.

    :param identities: the system users and groups that users of that cluster may impersonate.
    :param is_ours: whether its record may allow more.
    :raise Forbidden: with the value and the cure.
    """
    for what, name in _names(identity.user, identity.groups):
        if (what, name) != _EVERY_USER and _is_reserved(name, identities):
            raise Forbidden(
                f"the credential of {identity.user} for cluster {cluster} is rejected because of its {what} "
                f"{name!r}: {_why(name)}; request a kubeconfig without it"
                + _allowing(name, cluster if is_ours else ""),
                "reserved-identity",
            )


def check_grant(
    user: str, groups: Iterable[str], identities: SystemIdentities = NONE_ALLOWED, allowing: str = ""
) -> None:
    """Reject names in a kubeconfig that Kubernetes and Tower reserve.

    `tower.clusters.credentials` checks the syntax of names.

    :param identities: the system users and groups that users of the cluster may impersonate.
    :param allowing: the cluster whose record may allow more, or empty.
    :raise Invalid: with the value and the rule.
    """
    names = _names(user, groups)
    if len(names) > GROUPS_LIMIT + 1:
        raise Invalid(f"{len(names) - 1} groups: a kubeconfig has {GROUPS_LIMIT} at most")
    for what, name in names:
        if (what, name) == _EVERY_USER:
            raise Invalid(f"group {name!r}: Kubernetes adds it to every user: omit it")
        if _is_reserved(name, identities):
            raise Invalid(
                f"{what} {name!r}: {_why(name)}: choose another name, and bind it to a role "
                "(such as cluster-admin)" + _allowing(name, allowing)
            )


def _names(user: str, groups: Iterable[str]) -> list[tuple[str, str]]:
    return [("user", user), *(("group", group) for group in groups)]


def _is_reserved(name: str, identities: SystemIdentities) -> bool:
    return name.startswith(_OWN) or identities.refuses(name)


def _why(name: str) -> str:
    if name.startswith(_OWN):
        return f"names with the prefix {_OWN!r} are reserved for Tower"
    if name.startswith(_SYSTEM):
        return f"names with the prefix {_SYSTEM!r} are reserved for the cluster itself"
    return "it is an administrator's name in a Kubernetes distribution"


def _allowing(name: str, cluster: str) -> str:
    """Return how to allow *name* in *cluster*, if that is possible."""
    if not cluster or name.startswith(_OWN):
        return ""
    return f"; or allow it with 'tower cluster set {cluster} --allow-system-identity {name}'"
