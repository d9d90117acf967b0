"""The filters that every user request passes, in order.

A filter gets a request and the name of the requested cluster.  It accepts the request (returns None), rejects
it (raises), or decides later (returns a `Deferred` that fires with None or fails).  `user_chain` is the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from tower.errors import Forbidden, NotFound
from tower.kube.canonical_head import write_trusted_fields
from tower.kube.status import StatusError
from tower.web.access.authentication.anonymous import ANONYMOUS_METHOD
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.request_header import FrontProxyFields
from tower.web.access.authentication.reserved_names import authorize_identity
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.authentication_filter import Authentication
from tower.web.access.authorization.cluster_entry import ClusterEntry, FindCluster
from tower.web.access.authorization.credential_scope import (
    authorize_api,
    authorize_cluster,
    check_own_scope,
    check_token_scope,
)
from tower.web.access.authorization.impersonation import Impersonation, act
from tower.web.access.authorization.mode_filter import SELF_REVIEWS
from tower.web.access.authorization.requested import asked_of
from tower.web.gateway.raw_streams import TOWER_STREAM
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome

#: Takes the request and the cluster's name, empty for Tower's own API.
Filter: TypeAlias = Callable[[Request, str], "Deferred[None] | None"]


class FilterChain:
    """Filters in their order.

    :ivar rules: the one of *filters* that decides on each request, also if another one of the connection was
        admitted; None: there is none.
    """

    def __init__(self, *filters: Filter, rules: Filter | None = None) -> None:
        self._filters = filters
        self.rules = rules

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


class Authorization:
    """Admits a credential to the cluster, or to Tower's own API, that it was issued for.

    Users without such a credential enter the clusters that access policies admit them to.

    :param entry: None: no user enters by policies.
    :param has_roles: whether roles decide about Tower's own API; if not, only administrators may use it.
    """

    def __init__(
        self, find: FindCluster, entry: ClusterEntry | None = None, *, has_roles: bool = False
    ) -> None:
        self._find = find
        self._entry = entry
        self._check_own = check_own_scope if has_roles else authorize_api

    def __call__(self, request: Request, cluster: str) -> None:
        """Reject other requests; only administrators learn that a cluster does not exist."""
        identity: Any = request.identity
        if identity.begins_sessions:
            raise Forbidden(
                f"the ID token of {identity.user} can only begin a session: log in with 'tower login'",
                "access-policy",
            )
        if not cluster:
            is_self_review = request.method == b"POST" and request.path in SELF_REVIEWS
            if not is_self_review or identity.method == ANONYMOUS_METHOD:
                self._check_own(identity)
            return
        found = self._find(cluster)
        if identity.credential is None and self._entry is not None:
            check_token_scope(identity, cluster)
            request.identity = self._entry.admit(identity, found, cluster, asked_of(request))
            if request.entry is not None:
                request.entry.admitted(request.identity)
        elif found is None:
            raise self._missing(identity, cluster)
        else:
            authorize_cluster(identity, found.name, found.uid)
            authorize_identity(identity, cluster, found.identities, is_ours=found.type == "ssh")
        if not (found is not None and found.enabled):
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


class Impersonating:
    """Lets users act as others; after a decision that took time, the filters *before* are applied again."""

    def __init__(self, impersonation: Impersonation, *before: Filter) -> None:
        self._impersonation = impersonation
        self._before = before

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Set the request's identity to that of the other user, or reject the request."""
        identity = request.identity
        if not request.fields.foreign or not isinstance(identity, Identity) or identity.is_trusted_caller:
            return None
        waiting = self._impersonation.check(request, cluster)
        if waiting is not None:
            return Deferred.fromCoroutine(self._wait(waiting, request, cluster))
        act(request)
        return None

    async def _wait(self, waiting: Deferred[None], request: Request, cluster: str) -> None:
        await waiting
        for admit in self._before:
            more = admit(request, cluster)
            if more is not None:
                await more
        act(request)


class Rules:
    """Applies *rules*; after a decision that took time, the filters *before* it are applied again."""

    def __init__(self, rules: Filter, *before: Filter) -> None:
        self._rules = rules
        self._before = before

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Reject a request that the rules do not allow."""
        waiting = self._rules(request, cluster)
        return None if waiting is None else Deferred.fromCoroutine(self._wait(waiting, request, cluster))

    async def _wait(self, waiting: Deferred[None], request: Request, cluster: str) -> None:
        await waiting
        for admit in self._before:
            more = admit(request, cluster)
            if more is not None:
                await more


class Auditing:
    """Writes each request to the audit log before it has any effect.

    If the log blocks, the user is authenticated again afterwards.
    """

    def __init__(self, authentication: Filter) -> None:
        self._authentication = authentication

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Reject a request that the log has to store, and does not."""
        waiting = request.audit(cluster)
        return None if waiting is None else Deferred.fromCoroutine(self._wait(waiting, request, cluster))

    async def _wait(self, waiting: Deferred[None], request: Request, cluster: str) -> None:
        await waiting
        more = self._authentication(request, cluster)
        if more is not None:
            await more


def check_claims(request: Request, _cluster: str) -> None:
    """Reject identity fields that are left: their request must not run as its own user instead.

    `Impersonating` has already processed those of users with the right to impersonate.  A trusted caller may
    impersonate a user, or use one token of the member, in the standard header fields.
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
    if (foreign := fields.foreign) and not identity.is_acting:
        name = foreign.decode("latin-1")
        raise Forbidden(
            f"the header {name} is not accepted: this credential cannot act as another user "
            "(kubectl: omit --as, --as-group and --as-uid)",
            "impersonation",
        )


def authentication_chain(
    authenticator: AuthenticatorUnion, front_proxies: FrontProxyFields | None = None
) -> FilterChain:
    """Return the chain that only authenticates; see `Authentication`."""
    return FilterChain(Authentication(authenticator, front_proxies))


def user_chain(
    authenticator: AuthenticatorUnion,
    find: FindCluster,
    front_proxies: FrontProxyFields | None = None,
    entry: ClusterEntry | None = None,
    rules: Filter | None = None,
    own_rules: Filter | None = None,
    impersonation: Impersonation | None = None,
    door_tokens: Filter | None = None,
) -> FilterChain:
    """Return the chain of the front door and of the clusters' own ports.

    :param entry: admits users without a credential that Tower issued; None: they enter no cluster.
    :param rules: of ``--authorization-mode``; None: all requests into the cluster are allowed.
    :param own_rules: of Tower's own API; None: only administrators may use it.
    :param impersonation: lets users with the right act as others; None: only trusted callers do.
    :param door_tokens: see `tower.web.access.door_tokens`; None: there are no such tokens.
    """
    authentication = Authentication(authenticator, front_proxies)
    admission = Authorization(find, entry, has_roles=own_rules is not None)
    before: list[Filter] = [authentication, admission]
    if impersonation is not None:
        before.append(Impersonating(impersonation, authentication, admission))
    ruled = [Rules(each, *before) for each in (own_rules, rules) if each is not None]
    chain: list[Filter] = [authentication, Auditing(authentication), *before[1:], *ruled, check_claims]
    if door_tokens is not None:
        chain.append(door_tokens)
    return FilterChain(*chain, rules=ruled[-1] if rules is not None else None)
