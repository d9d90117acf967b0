"""The filter of ``--authorization-mode``: users who entered a cluster need a rule for each request.

Requests to Tower's own API need a rule of `tower.web.access.authorization.own_rights` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from attrs import define, evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.kube.access.rbac import Rule
from tower.kube.request_info import RequestInfo
from tower.kube.status import StatusError
from tower.reactor.cooperate import PIECE, map_cooperatively, yield_to_reactor
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import Identity, UserInfo, known_user
from tower.web.access.authorization.attributes import Attributes, attributes_of
from tower.web.access.authorization.cluster_scope import OWN
from tower.web.access.authorization.decision import Answer, Decision
from tower.web.access.authorization.decision_cache import DecisionCache
from tower.web.gateway.request import Request
from tower.web.outcome import RawStream
from tower.web.peer import Peer

#: Interval of `ModeAuthorization.sweep`, s.
PERIOD = 0.5

#: Paths of reviews: all users may ask about themselves, as in every Kubernetes cluster.
SELF_REVIEWS = (
    b"/apis/authentication.k8s.io/v1/selfsubjectreviews",
    b"/apis/authentication.k8s.io/v1beta1/selfsubjectreviews",
    b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    b"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
)

_TARGETS = "/targets/"
_INTERNAL = "internal error"
_NO_ROLE = (
    "this is Tower's own API: ask an administrator of Tower for a role such as tower:viewer, or use an "
    "administrator's kubeconfig"
)
_COMMANDS = ("attach", "exec", "portforward")


def _no_rules(_user: UserInfo, _namespace: str, _cluster: str) -> tuple[list[Rule], list[str]]:
    return [], []


@define(eq=False)
class _Live:
    """The use of one connection; see `tower.web.gateway.user_session.Ruled`.

    :ivar user: *identity* as rules name it.
    :ivar attributes: those of its last request that was allowed; None: there was none.
    """

    rules: DecisionCache
    identity: Identity
    user: UserInfo
    attributes: Attributes | None = None
    is_kept: bool = False


class ModeAuthorization:
    """Rejects requests that the *authorizer* of *modes* does not allow, and ends them if that changes.

    :param modes: empty: the requests are those to Tower's own API; else those into clusters.
    :param clock: runs long sweeps in pieces.
    :ivar rules_for: returns the rules of a user in a namespace of a cluster, and why some are not known.
    """

    _log = Logger()

    def __init__(
        self,
        authorizer: DecisionCache,
        modes: str,
        clock: IReactorTime,
        rules_of: Callable[[UserInfo, str, str], tuple[list[Rule], list[str]]] = _no_rules,
    ) -> None:
        self._authorizer, self._modes, self._clock = authorizer, modes, clock
        self.rules_for = rules_of
        self._is_own = not modes
        self._generation = authorizer.generation
        self._live: WeakKeyDictionary[Peer, _Live] = WeakKeyDictionary()

    def __call__(self, request: Request, cluster: str) -> Deferred[None] | None:
        """Reject a request; see `tower.web.access.filters`."""
        identity = request.identity
        if bool(cluster) is self._is_own or not isinstance(identity, Identity):
            return None
        if self._is_own and request.method == b"POST" and request.path in SELF_REVIEWS:
            return None
        peer = request.channel.peer
        live = self._live.get(peer)
        if live is None:
            live = self._live[peer] = _Live(self._authorizer, identity, user_of(identity))
            if not self._is_own:
                request.channel.ruled = live
        elif live.identity is not identity:
            live.identity, live.user = identity, user_of(identity)
        if self._is_own:
            attributes = attributes_of(live.user, request.method, request.target, OWN)
        else:
            attributes = requested_attributes(request, live.user, cluster)
        return self._check(request, attributes, live)

    def _check(self, request: Request, attributes: Attributes, live: _Live) -> Deferred[None] | None:
        answer = self._authorizer.authorize(attributes)
        if isinstance(answer, Deferred):
            return Deferred.fromCoroutine(self._wait(answer, request, attributes, live))
        return self._enforce(answer, request, attributes, live)

    async def _wait(
        self, answer: Deferred[Decision], request: Request, attributes: Attributes, live: _Live
    ) -> None:
        more = self._enforce(await answer, request, attributes, live)
        if more is not None:
            await more

    def _enforce(
        self, decision: Decision, request: Request, attributes: Attributes, live: _Live
    ) -> Deferred[None] | None:
        error, entry = self.refusal(decision, attributes), request.entry
        if entry is not None:
            reason = decision.reason if error is None or not decision.error else _INTERNAL
            entry.decided("allow" if error is None else "forbid", reason)
        if error is not None:
            raise error
        if is_command(attributes.request) and not self._is_own:
            # as kube-apiserver: a WebSocket begins with GET, so a right to read would be enough
            return self._check(
                request, evolve(attributes, request=attributes.request._replace(verb="create")), live
            )
        live.attributes = attributes
        live.is_kept = decision.may_be_kept and attributes.request.subresource not in _COMMANDS
        return None

    def refusal(self, decision: Decision, attributes: Attributes) -> StatusError | None:
        """Return the rejection of a request; None: it is allowed."""
        if decision.is_allowed:
            return None
        if decision.error:
            return StatusError(
                500, f"Internal error occurred: {decision.error}; an administrator can see Tower's log"
            )
        if self._is_own:
            return attributes.refusal(decision.reason, _NO_ROLE)
        return attributes.refusal(
            decision.reason,
            f"this is a rule of Tower (--authorization-mode {self._modes}), not of cluster "
            f"{attributes.cluster}: ask an administrator of Tower",
        )

    def decide(self, attributes: Attributes) -> Answer:
        """Return the decision on a request that a user asks about."""
        return self._authorizer.authorize(attributes)

    def explained(self, decision: Decision, attributes: Attributes) -> str:
        """Return why a request with these attributes is not allowed; empty: it is."""
        if decision.is_allowed:
            return ""
        if decision.error:
            return decision.error
        if not decision.reason:
            return f"no rule of Tower allows it (--authorization-mode {self._modes})"
        return f"{decision.reason}; this is a rule of Tower (--authorization-mode {self._modes})"

    async def sweep(self) -> None:
        """End connections whose last request is no longer allowed; call it every `PERIOD`."""
        generation = self._authorizer.generation
        if generation == self._generation:
            return
        self._generation = generation
        connections = [
            (peer, live.attributes) for peer, live in self._live.items() if live.attributes is not None
        ]
        await map_cooperatively(self._clock, connections, self._check_again)

    async def ask_again(self) -> None:
        """Decide again about watches and commands in progress, and end those that are no longer allowed.

        It is for modes that do not announce their changes.  One question is asked at a time, so that new
        requests do not wait.
        """
        for number, reference in enumerate(self._live.keyrefs(), 1):
            peer = reference()
            attributes = None if peer is None else self._last(peer)
            if peer is not None and attributes is not None and attributes.request.is_long_running:
                answer = self._authorizer.authorize(attributes)
                decision = await answer if isinstance(answer, Deferred) else answer
                self._recheck(decision, peer, attributes)
            if number % PIECE == 0:
                await yield_to_reactor(self._clock)

    def _last(self, peer: Peer) -> Attributes | None:
        live = self._live.get(peer)
        return None if live is None else live.attributes

    def _check_again(self, connection: tuple[Peer, Attributes]) -> None:
        peer, attributes = connection
        if self._last(peer) is not attributes:
            return  # another request has been decided meanwhile
        answer = self._authorizer.authorize(attributes)
        if isinstance(answer, Deferred):
            answer.addCallback(self._recheck, peer, attributes)
        else:
            self._recheck(answer, peer, attributes)

    def _recheck(self, decision: Decision, peer: Peer, attributes: Attributes) -> None:
        refusal = self.refusal(decision, attributes)
        if refusal is None or decision.error or self._last(peer) is not attributes:
            return
        del self._live[peer]
        self._log.info(
            "closed a connection of {user} to {what}: {reason}",
            user=attributes.user.name,
            what=f"cluster {attributes.cluster}" if attributes.cluster else "Tower's own API",
            reason=refusal.message,
        )
        peer.abort(refusal.message, 403)


def is_command(info: RequestInfo) -> bool:
    """Return whether a request runs a command in a pod, but does not have the verb ``create``.

    It needs this verb, too.
    """
    is_pod = info.resource == "pods" and not info.group
    return is_pod and info.subresource in _COMMANDS and info.verb != "create"


def requested_attributes(request: Request, user: UserInfo, cluster: str) -> Attributes:
    """Return the attributes of a request at the destination that its router has set.

    A target other than the API server has the path ``/targets/NAME/...``.
    """
    destination = request.destination
    if destination is None:
        path = unquote(request.path.decode("ascii", "replace"))
        return Attributes(user, RequestInfo(request.method.decode("ascii").lower(), path), cluster)
    if isinstance(destination, RawStream):
        return Attributes(user, RequestInfo("connect", _TARGETS + destination.target), cluster)
    target = request.target[len(destination.prefix) :]
    if destination.target != KUBERNETES:
        target = f"{_TARGETS}{destination.target}".encode() + target
    return attributes_of(user, request.method, target, cluster)


def user_of(identity: Identity) -> UserInfo:
    """Return the user as rules name it: with the group of all authenticated users."""
    return known_user(identity.user, identity.groups, identity.uid, identity.extra)
