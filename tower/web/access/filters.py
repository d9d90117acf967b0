"""The filters that every user request passes, in order.

A filter gets a request and the name of the requested cluster.  It accepts the request (returns None), rejects
it (raises), or decides later (returns a `Deferred` that fires with None or fails).  `user_chain` is the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from tower.clusters import Cluster
from tower.errors import Forbidden, NotFound
from tower.kube.canonical_head import write_trusted_fields
from tower.kube.status import StatusError
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.reserved_names import authorize_identity
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.authorization.credential_scope import authorize_api, authorize_cluster
from tower.web.gateway.raw_streams import TOWER_STREAM
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome

#: Returns the cluster of a name, or None.
FindCluster: TypeAlias = Callable[[str], Cluster | None]
#: Takes the request and the cluster's name, empty for Tower's own API.
Filter: TypeAlias = Callable[[Request, str], "Deferred[None] | None"]


class FilterChain:
    """Filters in their order."""

    def __init__(self, *filters: Filter) -> None:
        self._filters = filters

    def __call__(
        self, request: Request, cluster: str, end: Callable[[], Outcome | Deferred[Outcome]]
    ) -> Outcome | Deferred[Outcome]:
        """Return the result of *end*, once every filter has accepted *request* (*cluster* may be empty)."""
        filters = iter(self._filters)
        for admit in filters:
            waiting = admit(request, cluster)
            if waiting is not None:
                return Deferred.fromCoroutine(self._continue(waiting, filters, request, cluster, end))
        return end()

    async def _continue(
        self,
        waiting: Deferred[None],
        rest: Iterator[Filter],
        request: Request,
        cluster: str,
        end: Callable[[], Outcome | Deferred[Outcome]],
    ) -> Outcome:
        await waiting
        for admit in rest:
            more = admit(request, cluster)
            if more is not None:
                await more
        outcome = end()
        return await outcome if isinstance(outcome, Deferred) else outcome


class Authentication:
    """Authenticates the user, caches the identity on the connection, and checks it again for each request."""

    def __init__(self, authenticator: AuthenticatorUnion) -> None:
        self._authenticator = authenticator

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Set the request's identity, or reject the request."""
        bearer, cached = request.fields.bearer, request.channel.authenticated
        if cached is not None and cached[0] == bearer:
            identity = cached[1]
            self._authenticator.check(identity)
            request.identity = identity
            return None
        found = self._authenticator.authenticate(Presented(request.certificate, bearer, request.fields))
        if isinstance(found, Deferred):
            return Deferred.fromCoroutine(self._wait(found, request, bearer))
        _authenticated(found, request, bearer)
        return None

    async def _wait(self, found: Deferred[Identity], request: Request, bearer: bytes | None) -> None:
        _authenticated(await found, request, bearer)


def _authenticated(identity: Identity, request: Request, bearer: bytes | None) -> None:
    request.channel.authenticated = (bearer, identity)  # the certificate cannot change within a connection
    request.channel.prove()
    request.identity = identity


class Authorization:
    """Admits a credential to the cluster, or to Tower's own API, that it was issued for."""

    def __init__(self, find: FindCluster) -> None:
        self._find = find

    def __call__(self, request: Request, cluster: str) -> None:
        """Reject other requests; only administrators learn that a cluster does not exist."""
        identity: Any = request.identity
        if not cluster:
            authorize_api(identity)
            return
        found = self._find(cluster)
        if found is None:
            raise self._missing(identity, cluster)
        authorize_cluster(identity, found.name, found.uid)
        authorize_identity(identity, cluster, found.identities, is_ours=found.type == "ssh")
        if not found.enabled:
            raise StatusError(
                503, f"cluster {cluster} is disabled: ask an administrator ('tower cluster enable {cluster}')"
            )

    def _missing(self, identity: Identity, cluster: str) -> NotFound | Forbidden:
        try:
            authorize_api(identity)
        except Forbidden:
            return Forbidden(
                f"the credential of {identity.user} is not valid for cluster {cluster}: "
                f"request a kubeconfig for cluster {cluster}",
                "unknown-cluster",
            )
        return NotFound(f"cluster {cluster} not found: 'tower cluster list' shows all")


def check_claims(request: Request, _cluster: str) -> None:
    """Reject claims of another identity: a request with them must not run as its own user instead.

    A trusted caller may impersonate a user, or use one token of the member's, in the usual forms.
    """
    identity: Any = request.identity
    fields = request.fields
    if identity.is_trusted_caller:
        token = identity.member_token(fields.bearer)
        if (token is not None or fields.foreign) and fields.has_subprotocol_token:
            raise Forbidden(
                "a trusted caller's bearer token is not accepted as a WebSocket subprotocol: "
                "send it as Authorization",
                "impersonation",
            )
        if fields.foreign and fields.get(b"authorization") is not None and fields.bearer is None:
            raise Forbidden(
                "a request that impersonates a user (Impersonate-*) must not have another credential: "
                "omit Authorization",
                "impersonation",
            )
        if fields.foreign and fields.upgrade.lower() == TOWER_STREAM:
            raise Forbidden(
                "a raw stream has no user to impersonate: omit Impersonate-* fields", "impersonation"
            )
        write_trusted_fields(fields, b"", b"", token)
        return
    if foreign := fields.foreign:
        name = foreign.decode("latin-1")
        raise Forbidden(
            f"the header {name} is not accepted: only trusted callers impersonate users "
            "(kubectl: omit --as, --as-group and --as-uid)",
            "impersonation",
        )


def authentication_chain(authenticator: AuthenticatorUnion) -> FilterChain:
    """Return the chain that only authenticates."""
    return FilterChain(Authentication(authenticator))


def user_chain(authenticator: AuthenticatorUnion, find: FindCluster) -> FilterChain:
    """Return the chain of the front door and of the clusters' own ports."""
    return FilterChain(Authentication(authenticator), _audit, Authorization(find), check_claims)


def _audit(request: Request, cluster: str) -> None:
    request.audit(cluster)  # before the request has any effect
