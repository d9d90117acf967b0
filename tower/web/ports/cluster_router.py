"""Base of the routers of users' ports: routes into clusters, through the filter chain."""

from __future__ import annotations

from typing import Any, TypeAlias

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred

from tower.tunnels.targets import KUBERNETES
from tower.web.access.admission_cache import AdmissionGeneration, CachedAdmission
from tower.web.access.authentication.anonymous import ANONYMOUS_METHOD
from tower.web.access.authentication.identity import Identity
from tower.web.access.filters import Filter, FilterChain
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Relay
from tower.web.ports.door_reviews import DoorReviews, is_review

Answer: TypeAlias = "Outcome | Deferred[Outcome]"


class ClusterRoute:
    """The route to one cluster's API server, or to another of its targets; cached."""

    __slots__ = ("name", "relay")

    def __init__(self, name: str, prefix: bytes, target: str = KUBERNETES, scope: bytes = b"") -> None:
        self.name = name
        self.relay = Relay(name, prefix, target, plain=target != KUBERNETES, scope=scope)

    def end(self) -> Outcome:
        """Return the relay: the end of the filter chain."""
        return self.relay


@mypyc_attr(allow_interpreted_subclasses=True)
class ClusterRouter:
    """Repeats the admission of the connection where it covers a request; else a subclass finds the route."""

    def __init__(
        self, chain: FilterChain, generation: AdmissionGeneration, reviews: DoorReviews | None = None
    ) -> None:
        self._chain = chain
        self._generation = generation
        self._reviews = reviews

    def __call__(self, request: Request) -> Answer:
        """Return the destination of *request*: usually that of the connection's last request."""
        admission = request.channel.admission
        if admission is None:
            return self._route(request)
        if admission.repeat(request, self._generation):
            return admission.relay
        if admission.covers(request, self._generation):
            request.identity = admission.identity
            waiting = request.audit(admission.relay.cluster)
            if waiting is not None:
                return waiting.addCallback(lambda _: self(request))  # the admission might have ended
            rules, relay = self._generation.rules, admission.relay
            answer = relay if rules is None else _ruled(rules, request, relay)
            if self._reviews is not None and is_review(request, relay):
                return reviewed(self._reviews, request, answer)
            if answer is relay:
                admission.remember(request, self._generation)
            return answer
        return self._route(request)

    def _route(self, request: Request) -> Answer:
        raise NotImplementedError

    def _follow(self, request: Request, route: ClusterRoute) -> Answer:
        """Return the relay of *route*, if the filters accept *request*."""
        generation = self._generation
        current = generation.current
        request.destination = route.relay
        outcome = self._chain(request, route.name, route.end)
        if self._reviews is not None and is_review(request, route.relay):
            return reviewed(self._reviews, request, outcome)
        identity: Any = request.identity
        claimed = request.channel.claimed
        depends_on_fields = claimed is not None and claimed.onward is request.fields
        if outcome is route.relay and not depends_on_fields and not _depends_on_request(identity):
            # every filter decided at once, so nothing changed meanwhile
            request.channel.admission = CachedAdmission(request, identity, route.relay, generation, current)
        return outcome


def _depends_on_request(identity: Identity) -> bool:
    """Return whether another request of the connection may have another identity."""
    return identity.is_acting or identity.method == ANONYMOUS_METHOD


def reviewed(reviews: DoorReviews, request: Request, answer: Answer) -> Answer:
    """Return the answer to a review if the request was accepted, which *answer* may only show later."""

    def then(outcome: Outcome) -> Answer:
        return reviews(request, outcome) if isinstance(outcome, Relay) else outcome

    return answer.addCallback(then) if isinstance(answer, Deferred) else then(answer)


def _ruled(rules: Filter, request: Request, relay: Relay) -> Answer:
    """Return *relay*, if the rules accept a request that has passed all other filters."""
    request.destination = relay
    waiting = rules(request, relay.cluster)
    return relay if waiting is None else waiting.addCallback(lambda _: relay)
