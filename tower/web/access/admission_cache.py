"""The last admission of a connection, valid for similar requests of that connection.

The filters depend only on a request's credential, its impersonation headers, its cluster and target, the
levels of access that permit it, the records and the time.  So a request that passed them would pass again
while none of these has changed; `CachedAdmission` checks that with a few comparisons.

Rules and the audit policy decide on each request; an equal request gets the same decision while their sources
have not changed, see `tower.web.access.allowed_requests`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred

from tower.http.requests import Fields
from tower.store import IStore
from tower.store.kinds import ACCESS_POLICIES, CLUSTERS, CREDENTIALS
from tower.store.records import Event
from tower.tunnels.targets import KUBERNETES
from tower.web.access.allowed_requests import AllowedRequests, allowed_of
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.requested import requested_levels
from tower.web.gateway.request import Request
from tower.web.outcome import Relay

#: A filter of `tower.web.access.filters`.
Decide: TypeAlias = Callable[[Request, str], "Deferred[None] | None"]

_KINDS: Final = (CREDENTIALS, CLUSTERS, ACCESS_POLICIES)

# Below a cluster's prefix, but not served by its API server; see `tower.web.ports.router`.
_TARGETS: Final = b"targets/"

# A prefix of no path.
_NOTHING: Final = b"\0"


class AdmissionGeneration:
    """A number that changes with the records on which admissions depend; *seconds* returns Unix time, s.

    Create it after all caches of the same records, so that it is notified after them.

    :ivar rules: a filter that decides on each request, also after a cached admission; None: there is none.
    :ivar allowed: the requests that it has allowed.
    """

    def __init__(self, store: IStore, seconds: Callable[[], float], rules: Decide | None = None) -> None:
        self.current = 0
        self.rules = rules
        self.allowed = AllowedRequests()
        self.seconds = seconds
        self._watches = [store.watch(kind, self._changed) for kind in _KINDS]

    def advance(self) -> None:
        """Invalidate all cached admissions, after a change that no record shows."""
        self.current += 1
        self.allowed.clear()

    def _changed(self, _event: Event) -> None:
        self.advance()

    def stop(self) -> None:
        """Stop following the records; all cached admissions become invalid."""
        self.advance()
        for watch in self._watches:
            watch.stop()


class CachedAdmission:
    """The relay that a connection was admitted to.

    :param current: `AdmissionGeneration.current` before the filters ran.
    """

    __slots__ = (
        "_agent",
        "_allowed",
        "_bearer",
        "_except",
        "_fields",
        "_generation",
        "_lease",
        "_levels",
        "_prefix",
        "_since",
        "_until",
        "identity",
        "relay",
    )

    def __init__(
        self,
        request: Request,
        identity: Identity,
        relay: Relay,
        generation: AdmissionGeneration,
        current: int,
    ) -> None:
        self.identity = identity
        self.relay = relay
        self._bearer: bytes | None = request.fields.bearer
        self._prefix = relay.prefix + b"/"
        self._except = self._prefix + _TARGETS if relay.prefix and relay.target == KUBERNETES else _NOTHING
        self._generation = current
        self._since, self._until = identity.term
        self._lease = identity.lease
        self._levels = 0 if identity.entry is None else identity.entry.levels
        self._agent = request.fields.get(b"user-agent")
        self._fields: Fields | None = None  # those of a request with the same user and client
        self._allowed = generation.allowed.of((identity, relay, self._agent, request.channel.peer.address))

    def covers(self, request: Request, generation: AdmissionGeneration) -> bool:
        """Return whether *request*, of the same connection, has the same relay; if not, run the filters."""
        fields = request.fields
        return (
            generation.current == self._generation
            and fields.bearer == self._bearer
            and not (fields.foreign or fields.upgrade)
            and request.target.startswith(self._prefix)
            and not request.target.startswith(self._except)
            and self._since <= generation.seconds() < self._until
            and (self._lease is None or self._lease.counts(generation.seconds()))
            and (not self._levels or self._levels == requested_levels(request, self.relay))
        )

    def remember(self, request: Request, generation: AdmissionGeneration) -> None:
        """Record that *request*, which is covered, was allowed at once: equal ones will not be decided on."""
        channel, rules = request.channel, generation.rules
        ruled = None if rules is None else channel.ruled
        if (rules is not None and (ruled is None or not ruled.is_kept)) or not self._is_same_client(request):
            return
        audit = channel.gateway.audit
        known = None if audit is None else audit.known(request.entry)
        generation.allowed.keep(self._allowed, request.method, request.target, allowed_of(ruled, known))

    def repeat(self, request: Request, generation: AdmissionGeneration) -> bool:
        """Accept *request*, and begin its audit entry, if an equal one was allowed and nothing has changed.

        Return whether it is accepted; if not, nothing was done.
        """
        allowed = self._allowed.get((request.method, request.target))
        if (
            allowed is None
            or generation.current != self._generation
            or not allowed.holds()
            or not (request.fields is self._fields or self._is_same_client(request))
            or not self._since <= (now := generation.seconds()) < self._until
            or (self._lease is not None and not self._lease.counts(now))
        ):
            return False
        channel, known = request.channel, allowed.known
        audit = channel.gateway.audit
        if audit is not None:
            if known is None or known.policy is not audit.policy:
                return False
            request.entry = known.begin(request, now)
        if channel.ruled is not None:
            channel.ruled.attributes = allowed.attributes
        request.cluster, request.identity = self.relay.cluster, self.identity
        return True

    def _is_same_client(self, request: Request) -> bool:
        """Return whether the fields of *request* are such that the same decisions and events apply."""
        fields = request.fields
        if (
            fields.bearer != self._bearer
            or fields.foreign
            or fields.upgrade
            or fields.get(b"user-agent") != self._agent
            or fields.get(b"audit-id") is not None
        ):
            return False
        self._fields = fields  # a connection keeps the parsed fields of equal heads
        return True
