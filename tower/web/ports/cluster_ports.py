"""Routers of the clusters' own ports: every request is the cluster's."""

from __future__ import annotations

from collections.abc import Callable

from tower.clusters.credentials import PREFIX
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.identity import ANONYMOUS, MEMBER_ACCOUNT, is_account_token
from tower.web.access.filters import FilterChain, check_claims
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Relay
from tower.web.ports.cluster_router import Answer, ClusterRoute, ClusterRouter
from tower.web.ports.door_reviews import DoorReviews

_TOKEN_PREFIX = PREFIX.encode()


class ClusterPort(ClusterRouter):
    """The router of a cluster's own port: relays every request to the cluster."""

    def __init__(
        self,
        chain: FilterChain,
        cluster: str,
        generation: AdmissionGeneration,
        reviews: DoorReviews | None = None,
    ) -> None:
        super().__init__(chain, generation, reviews)
        self._route_to_cluster = ClusterRoute(cluster, b"")

    def _route(self, request: Request) -> Answer:
        return self._follow(request, self._route_to_cluster)


class OpenClusterPort(ClusterPort):
    """The router of a cluster's own port without required authentication, as all of KubeSphere Tower's were.

    A request with a token from Tower is authenticated.  Any other request runs with the agent's own
    credential, if the agent adds one at all; see `tower.web.gateway.proxy_client`.
    """

    def __init__(
        self,
        chain: FilterChain,
        cluster: str,
        generation: AdmissionGeneration,
        reviews: DoorReviews | None = None,
    ) -> None:
        super().__init__(chain, cluster, generation, reviews)
        self._open = Relay(cluster, plain=True)

    def __call__(self, request: Request) -> Answer:
        """Return the destination of *request*."""
        bearer = request.fields.bearer
        if bearer is not None and bearer.startswith(_TOKEN_PREFIX):
            return super().__call__(request)
        request.identity = ANONYMOUS
        waiting = request.audit(self._open.cluster)
        return self._open if waiting is None else waiting.addCallback(lambda _: self._open)


class TokenClusterPort(ClusterPort):
    """The router of a cluster's own port that accepts tokens of the cluster's own service accounts.

    A request with such a token and without a client certificate is relayed with that token as its only
    identity: the cluster's API server authenticates it.  All others are authenticated by Tower.

    :param is_for_door: returns whether a token is of a provider that Tower trusts: it opens other clusters,
        so no cluster must get it.
    """

    def __init__(
        self,
        chain: FilterChain,
        cluster: str,
        generation: AdmissionGeneration,
        is_for_door: Callable[[bytes], bool] = lambda _: False,
        reviews: DoorReviews | None = None,
    ) -> None:
        super().__init__(chain, cluster, generation, reviews)
        self._is_for_door = is_for_door

    def __call__(self, request: Request) -> Answer:
        """Return the destination of *request*."""
        bearer = request.fields.bearer
        if bearer is None or request.certificate is not None or not is_account_token(bearer):
            return super().__call__(request)
        if self._is_for_door(bearer):
            return super().__call__(request)
        request.identity = MEMBER_ACCOUNT
        route = self._route_to_cluster
        waiting = request.audit(route.name)
        if waiting is not None:
            return waiting.addCallback(lambda _: _claimless(request, route))
        return _claimless(request, route)


def _claimless(request: Request, route: ClusterRoute) -> Outcome:
    check_claims(request, route.name)
    return route.relay
