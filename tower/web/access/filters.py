"""The filters that every request of a user passes, in order.

A filter looks at a request and at where it wants to go.  It lets it pass (returns None), refuses it (raises),
or takes its time (returns a `Deferred` that fires with None or fails).  `user_chain` is the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from tower.errors import Forbidden, NotFound
from tower.kube.status import StatusError
from tower.kube.system_identities import SystemIdentities
from tower.web.access.authentication import (
    Authenticates,
    Identity,
    authorize_api,
    authorize_cluster,
    authorize_identity,
)
from tower.web.outcome import Outcome


class Fields(Protocol):
    """What is needed of `tower.http.requests.Fields`."""

    @property
    def bearer(self) -> bytes | None:
        """The bearer token, or None."""

    @property
    def foreign(self) -> bytes:
        """The first field that claims an identity, or empty."""


class Channel(Protocol):
    """What is needed of `tower.web.gateway.http_channel.HTTPChannel`."""

    authenticated: Any

    def prove(self) -> None:
        """See `tower.web.gateway.http_channel.HTTPChannel.prove`."""


class Request(Protocol):
    """What is needed of `tower.web.gateway.request.Request`."""

    identity: Any

    def audit(self, cluster: str) -> None:
        """See `tower.web.gateway.request.Request.audit`."""

    @property
    def channel(self) -> Channel:
        """The connection it came on."""

    @property
    def fields(self) -> Fields:
        """Its header."""

    @property
    def certificate(self) -> bytes | None:
        """The client's certificate, DER, or None."""


class Known(Protocol):
    """What is needed of `tower.clusters.Cluster`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Names it among all that had its name."""

    @property
    def enabled(self) -> bool:
        """Whether it may be used."""

    @property
    def type(self) -> str:
        """The way into it: `ssh` where its record says whom users may act as."""

    @property
    def identities(self) -> SystemIdentities:
        """Whom of the system users may act as."""


#: Returns the cluster of a name, or None.
Find: TypeAlias = Callable[[str], Known | None]
#: Takes the request and the cluster's name, empty for Tower's own API.
Filter: TypeAlias = Callable[[Any, str], "Deferred[None] | None"]


class FilterChain:
    """Filters in their order."""

    def __init__(self, *filters: Filter) -> None:
        self._filters = filters

    def __call__(
        self, request: Request, cluster: str, end: Callable[[], Outcome | Deferred[Outcome]]
    ) -> Outcome | Deferred[Outcome]:
        """Return what *end* returns, once every filter has let *request* pass.

        :param cluster: where it wants to go; empty for Tower's own API.
        """
        filters = iter(self._filters)
        for admit in filters:
            waiting = admit(request, cluster)
            if waiting is not None:
                return Deferred.fromCoroutine(self._go_on(waiting, filters, request, cluster, end))
        return end()

    async def _go_on(
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
    """Finds out who asks; remembers it on the connection, and checks it again for each request."""

    def __init__(self, authenticator: Authenticates) -> None:
        self._authenticator = authenticator

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Leave the caller's identity on *request*, or refuse who has none."""
        bearer, kept = request.fields.bearer, request.channel.authenticated
        if kept is not None and kept[0] == bearer:
            identity: Identity = kept[1]
            self._authenticator.check(identity)
            request.identity = identity
            return None
        found = self._authenticator.authenticate(request.certificate, bearer)
        if isinstance(found, Deferred):
            return Deferred.fromCoroutine(self._wait(found, request, bearer))
        _keep(found, request, bearer)
        return None

    async def _wait(self, found: Deferred[Identity], request: Request, bearer: bytes | None) -> None:
        _keep(await found, request, bearer)


def _keep(identity: Identity, request: Request, bearer: bytes | None) -> None:
    request.channel.authenticated = (bearer, identity)  # the certificate is the connection's own
    request.channel.prove()
    request.identity = identity


class RightPlace:
    """Lets a credential into the cluster it was issued for, and nowhere else."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def __call__(self, request: Request, cluster: str) -> None:
        """Refuse who has no business there; only administrators learn which clusters there are not."""
        if not cluster:
            authorize_api(request.identity)
            return
        found = self._find(cluster)
        if found is None:
            raise self._missing(request.identity, cluster)
        identity: Identity = request.identity
        authorize_cluster(identity, found.name, found.uid)
        authorize_identity(identity, cluster, found.identities, is_ours=found.type == "ssh")
        if not found.enabled:
            raise StatusError(
                503,
                f"cluster {cluster} is disabled: ask an administrator ('tower cluster enable {cluster}')",
            )

    def _missing(self, identity: Identity, cluster: str) -> NotFound | Forbidden:
        try:
            authorize_api(identity)
        except Forbidden:
            return Forbidden(f"the credential of {identity.user} does not open cluster {cluster}")
        return NotFound(f"cluster {cluster} not found: 'tower cluster list' shows all")


def no_foreign_identity(request: Request, _cluster: str) -> None:
    """Refuse headers that claim to be somebody else: who sends them must not run as himself instead."""
    if foreign := request.fields.foreign:
        name = foreign.decode("latin-1")
        raise Forbidden(
            f"the header {name} is not accepted: nobody may act as somebody else through Tower "
            "(kubectl: leave out --as, --as-group and --as-uid)"
        )


def audited(request: Request, cluster: str) -> None:
    """Have what is asked written to the audit log before anything is done about it."""
    request.audit(cluster)


def identification(authenticator: Authenticates) -> FilterChain:
    """Return the chain that only finds out who asks."""
    return FilterChain(Authentication(authenticator))


def user_chain(authenticator: Authenticates, find: Find) -> FilterChain:
    """Return the chain of the front door and of the clusters' own ports."""
    return FilterChain(
        Authentication(authenticator),
        audited,
        RightPlace(find),
        no_foreign_identity,
    )
