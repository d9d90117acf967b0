"""Who is asking, and may he go in there: credentials that Tower issued, looked up for each request.

A client shows a certificate (its digest is what counts) or a bearer token.  Anonymous callers are refused.
What is cached on a connection is the `Identity`; `Authenticator.check` is one look-up in a dictionary and
belongs before each request, so that expiry and revocation hold for kept-alive connections and resumed TLS
sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import ADMINS, PREFIX, Credential
from tower.errors import Forbidden, Invalid, Unauthorized
from tower.kube.system_identities import AUTHENTICATED, NONE_ALLOWED, SystemIdentities
from tower.kube.system_identities import PREFIX as _SYSTEM

#: Longest bearer token that is looked at, B.
TOKEN_LIMIT = 8192

#: Most groups that a credential may name; each is a header of every request.
GROUPS_LIMIT = 64

#: What names of Tower's own begin with.
_OWN = "tower:"

# What Kubernetes adds to every user, so that whoever has it is nobody more.
_EVERYBODY = ("group", AUTHENTICATED)


class Issues(Protocol):
    """Finds what was issued; see `tower.clusters.credentials.Credentials`."""

    def find(self, digest: str) -> Credential | None:
        """Return the credential whose token, or certificate in DER, has this SHA-256 (hexadecimal)."""


@attrs.frozen
class Identity:
    """Who is asking.

    :ivar user: never empty.
    :ivar credential: what he showed.
    """

    user: str
    groups: tuple[str, ...]
    credential: Credential = attrs.field(repr=False)

    def spent(self, bearer: bytes) -> bool:
        """Return whether a request's bearer token is for Tower, which then passes it on to nobody."""
        return self.credential.kind != "cert" or bearer.startswith(PREFIX.encode())


@attrs.frozen
class Anybody:
    """Whoever comes to a port that asks nobody who he is; there is only `ANYBODY`.

    He is nobody whom a cluster could be told of, so only plain relays take him along.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    credential: None = None

    def spent(self, bearer: bytes) -> bool:
        """Return that Tower has looked at no token."""
        return False


#: Left on a request by the routers of such ports.
ANYBODY = Anybody()


class Authenticates(Protocol):
    """What the filter chain asks who somebody is; other ways (OIDC) need time to find out."""

    def authenticate(self, certificate: bytes | None, bearer: bytes | None) -> Identity | Deferred[Identity]:
        """Return who shows these; see `Authenticator.authenticate`."""

    def check(self, identity: Identity) -> None:
        """Raise `Unauthorized` unless *identity* still holds."""


class Authenticator:
    """Knows those to whom Tower issued a credential.

    :param clock: its ``seconds()`` count from the epoch, as the reactor's do.
    """

    def __init__(self, credentials: Issues, clock: IReactorTime) -> None:
        self._credentials = credentials
        self._clock = clock

    def authenticate(self, certificate: bytes | None, bearer: bytes | None) -> Identity:
        """Return who shows this certificate or, if that is not good, this token.

        :param certificate: DER, from a TLS session that verified it.
        :param bearer: the token alone; see `bearer_token`.
        :raise Unauthorized: with a text for the one who asks; `Unauthorized.reason` is for the log.
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
            "no credential was sent, and nobody comes in without one: "
            "use a kubeconfig made by 'tower kubeconfig CLUSTER --user NAME'",
            "anonymous",
        )

    def check(self, identity: Identity) -> None:
        """Tell whether *identity*, found earlier on this connection, still holds.

        :raise Unauthorized: its credential has expired, was revoked, or is gone.
        """
        credential = self._credentials.find(identity.credential.digest)
        if credential is None or not credential.valid(self._clock.seconds()):
            raise self._refusal(credential, identity.credential)

    def _known(self, what: str, secret: bytes) -> Identity:
        if len(secret) > TOKEN_LIMIT:
            raise Unauthorized(f"the {what} is too long to be one of Tower's", f"{what} of {len(secret)} B")
        digest = hashlib.sha256(secret).hexdigest()
        credential = self._credentials.find(digest)
        if credential is None:
            raise Unauthorized(
                f"the {what} is not known here: it is another Tower's, its cluster was removed, "
                "or it ended long ago",
                f"unknown {what}",
            )
        if not credential.valid(self._clock.seconds()):
            raise self._refusal(credential, credential)
        return Identity(credential.user, credential.groups, credential)

    def _refusal(self, kept: Credential | None, shown: Credential) -> Unauthorized:
        """Return why a credential does not hold.

        :param kept: what is known of it now.
        :param shown: what was known when it was shown.
        """
        what, now = _described(shown), self._clock.seconds()
        if kept is not None and kept.revoked:
            return Unauthorized(f"{what} was revoked", f"{shown.id} was revoked")
        if now >= shown.expires:
            end = datetime.fromtimestamp(shown.expires, UTC)
            return Unauthorized(
                f"{what} expired at {end:%Y-%m-%dT%H:%M:%SZ}: ask for a new kubeconfig", f"{shown.id} expired"
            )
        if kept is None:
            return Unauthorized(f"{what} was withdrawn, or its cluster removed", f"{shown.id} is gone")
        return Unauthorized(
            f"{what} was issued later than now: the proxy's clock was set back; ask for a new kubeconfig",
            f"{shown.id} comes from the future",
        )


def _described(credential: Credential) -> str:
    place = f"cluster {credential.cluster}" if credential.cluster else "Tower's own API"
    return f"the credential of {credential.user} for {place}"


def bearer_token(authorization: bytes | None) -> bytes | None:
    """Return the token of an ``Authorization`` header's value, or None when it holds none (RFC 6750, 2.1)."""
    if authorization is None:
        return None
    scheme, _, token = authorization.strip(b" \t").partition(b" ")
    token = token.strip(b" \t")
    return token if scheme.lower() == b"bearer" and token else None


def authorize_cluster(identity: Identity, name: str, uid: str) -> None:
    """Let *identity* into the cluster its credential is for.

    :param uid: of the cluster that has this name now.
    :raise Forbidden: it is for another one, or for Tower's own API.
    """
    credential = identity.credential
    if credential.cluster_uid != uid or credential.cluster != name or not uid:
        place = f"cluster {credential.cluster}" if credential.cluster else "Tower's own API"
        if credential.cluster == name:
            place = f"an earlier cluster {name}"
        raise Forbidden(f"the credential of {identity.user} is for {place} and does not open cluster {name}")


def authorize_api(identity: Identity) -> None:
    """Let *identity* use Tower's own API.

    :raise Forbidden: its credential is for a cluster, or it is no admin's.
    """
    if identity.credential.cluster or identity.credential.cluster_uid:
        raise Forbidden(
            f"the credential of {identity.user} is for cluster {identity.credential.cluster} "
            "and does not open Tower's own API"
        )
    if ADMINS not in identity.groups:
        raise Forbidden(f"{identity.user} is not in the group {ADMINS}, which Tower's own API is for")


def authorize_identity(
    identity: Identity, cluster: str, identities: SystemIdentities, *, is_ours: bool = False
) -> None:
    """Reject reserved names, also in credentials that an earlier version issued.

    :param cluster: its name.
    :param identities: whom of the system users of that cluster may act as.
    :param is_ours: whether its record may allow more.
    :raise Forbidden: naming the value and the cure.
    """
    for what, name in _names(identity.user, identity.groups):
        if (what, name) != _EVERYBODY and _is_reserved(name, identities):
            raise Forbidden(
                f"the credential of {identity.user} for cluster {cluster} is rejected because of its {what} "
                f"{name!r}: {_why(name)}; ask for a kubeconfig without it"
                + _allowing(name, cluster if is_ours else "")
            )


def check_grant(
    user: str, groups: Iterable[str], identities: SystemIdentities = NONE_ALLOWED, allowing: str = ""
) -> None:
    """Refuse names that Kubernetes and Tower keep for themselves: no kubeconfig carries them.

    What a name may look like at all is for `tower.clusters.credentials` to check.

    :param identities: whom of the system users may act as where the kubeconfig is for.
    :param allowing: the cluster whose record may allow more; empty: there is none.
    :raise Invalid: naming the value and the rule.
    """
    names = _names(user, groups)
    if len(names) > GROUPS_LIMIT + 1:
        raise Invalid(f"{len(names) - 1} groups: a kubeconfig may name {GROUPS_LIMIT} at most")
    for what, name in names:
        if (what, name) == _EVERYBODY:
            raise Invalid(f"group {name!r}: Kubernetes adds it to every user itself: leave it out")
        if _is_reserved(name, identities):
            raise Invalid(
                f"{what} {name!r}: {_why(name)}: choose another name and bind it to the role that you need "
                "(such as cluster-admin)" + _allowing(name, allowing)
            )


def _names(user: str, groups: Iterable[str]) -> list[tuple[str, str]]:
    return [("user", user), *(("group", group) for group in groups)]


def _is_reserved(name: str, identities: SystemIdentities) -> bool:
    return name.startswith(_OWN) or identities.refuses(name)


def _why(name: str) -> str:
    if name.startswith(_OWN):
        return f"names that begin with {_OWN!r} are Tower's own"
    if name.startswith(_SYSTEM):
        return f"names that begin with {_SYSTEM!r} are reserved for the cluster itself"
    return "it is the name of an administrator in a Kubernetes distribution"


def _allowing(name: str, cluster: str) -> str:
    """Say how *cluster* would allow *name*, if it can."""
    if not cluster or name.startswith(_OWN):
        return ""
    return f"; or allow it with 'tower cluster set {cluster} --allow-system-identity {name}'"
