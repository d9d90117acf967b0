"""The server side of users' connections.

* `Gateway`: one for each router.  ``tower.net.listening.listen(reactor, port, host, gateway.accept, tls)``
  serves it, on any number of ports; a ``TimerService(1.0, gateway.sweep)`` enforces its deadlines;
  `Gateway.stop` ends its connections.  The front door and a cluster's own port differ only in the router: a
  cluster port's router answers with a `Relay` without a prefix.
* **router**: ``router(request) -> Outcome | Deferred[Outcome]``, or it raises; see `tower.web.outcome`.
  It is called when the request's head is complete; a body may still follow.
* `tower.web.gateway.http_channel.HTTPChannel`: the receiver of one user's connection.  Its ``requestFactory``
  makes the requests, as in ``twisted.web.http``; a subclass of it is installed as `Gateway.protocol`.
* `tower.web.gateway.request.Request`: one request.  Its ``proxyClientFactoryClass`` relays it, as in
  ``twisted.web.proxy``: `tower.web.gateway.relay.ProxyClientFactory`, whose ``protocol`` is ``ProxyClient``.
* `tower.web.gateway.upstream.channel_pool.ChannelPool`: the pooled channels into the
  clusters, shared by all gateways.

A router and its filters read from a `Request`: ``method``, ``target``, ``path``, ``query`` (bytes);
``fields`` (`tower.http.requests.Fields`: ``bearer``, ``foreign``, ``upgrade``, ``get(b"accept")``);
``certificate`` (DER or None, read once for each connection); ``body(limit)`` (a ``Deferred[bytes]``, for
answers made by Tower); ``request_id``.  They set ``identity``; a relay requires it.
``request.channel.authenticated`` caches the authenticator's result for the next requests of the same
connection, with everything the result depends on, such as the token.  ``request.channel.admission`` caches
the router's decision for similar requests.

`Request.target` has no dot segment, no ``#``, and printable ASCII only.  The router must check Tower's own
part of it (`Relay.prefix`); the rest is relayed byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Self, TypeAlias

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.http.identity_fields import STANDARD, IdentityFields
from tower.kube.status import StatusError
from tower.net.budget import Budget, UnauthenticatedBudget
from tower.net.pipes import AcceptedPipe
from tower.reactor.log_batch import Summary
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.measurements import RequestMeter, RequestObserver
from tower.web.gateway.request import Request
from tower.web.gateway.round_robin import RoundRobin
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.limits.door_limits import DoorLimits
from tower.web.outcome import Outcome
from tower.web.request_kind import SHORT, WATCH, request_kind

if TYPE_CHECKING:
    from tower.web.access.audit.audit import Audit
    from tower.web.access.sessions import Sessions

#: Memory for bytes that cannot be forwarded yet, for a gateway without a share in the process's budget, B.
UNPLACED = 16 * 1024 * 1024

#: The same for unauthenticated connections, B.
UNPLACED_UNPROVEN = 2 * 1024 * 1024

#: Time for sending the reason to users of upgraded connections, s.
NOTICE_TIME = 2.0

Router: TypeAlias = Callable[[Request], "Outcome | Deferred[Outcome]"]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Time limits of users' connections, s.

    :ivar first_byte: for a new connection's first byte.
    :ivar head: from the first byte of a head to its last.
    :ivar idle: between an answer and the next request.
    :ivar body: for a body that Tower reads itself.
    :ivar answer: for the first byte of an answer: ``--request-timeout``; not for long-running requests.
    :ivar stalled: for a client that does not read what was sent.
    :ivar unproven: lifetime of a connection without a valid credential.
    :ivar unproven_stalled: as `stalled`, for such a connection.
    """

    first_byte: float = 30.0
    head: float = 10.0
    idle: float = 120.0
    body: float = 30.0
    answer: float = 60.0
    stalled: float = 3600.0
    unproven: float = 120.0
    unproven_stalled: float = 10.0


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Limits for unauthenticated clients that all gateways share, so that using several ports gains nothing.

    :ivar unproven: memory for connections without a valid credential.
    :ivar rejections: summarizes the log lines that such connections cause.
    """

    unproven: UnauthenticatedBudget
    round_robin: RoundRobin
    rejections: Summary

    @classmethod
    def of(cls, clock: IReactorTime, unproven: int = UNPLACED_UNPROVEN) -> Self:
        """Return new limits; *unproven* is the memory of all connections without a valid credential, B."""
        log = Logger(namespace="tower.web.gateway.request.Request")
        return cls(UnauthenticatedBudget(unproven, clock.seconds), RoundRobin(clock), Summary(clock, log))


@define(eq=False, repr=False, slots=False)
class Gateway:
    """Serves users' connections.

    :param router: decides how each request is answered.
    :param sessions: ends the requests of expired and revoked credentials.
    :param budget: lends memory for bytes that arrive faster than they can be forwarded; default: its own.
    :param inflight: limits of concurrent requests, shared by all gateways.
    :param observer: is notified of all requests.
    :param meter: counts all requests.
    :param shared: limits shared with other gateways; default: its own.
    :param claims: the header fields that claim an identity.
    :param protocol: the class of the connections' receivers.
    :ivar failures: number of requests answered with Tower's own Status.
    :ivar cut: number of requests in progress, streams included, that a stop has cut.
    :ivar date: the current ``Date`` line.
    :ivar farewell: message to clients at a stop: for requests that are cut, and upgraded connections.
    """

    clock: IReactorTime
    router: Router
    pool: ChannelPool
    sessions: Sessions
    limits: RequestLimits = field(factory=RequestLimits)
    budget: Budget = field(factory=lambda: Budget(UNPLACED))
    inflight: DoorLimits | None = None
    audit: Audit | None = None
    observer: RequestObserver | None = None
    meter: RequestMeter | None = None
    shared: SharedLimits | None = None
    claims: IdentityFields = STANDARD
    protocol: type[HTTPChannel] = HTTPChannel
    requests: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    cut: int = field(default=0, init=False)
    farewell: str = field(default="tower-proxy is stopping", init=False)
    stopping: bool = field(default=False, init=False)
    _channels: set[HTTPChannel] = field(factory=set, init=False)
    _stopped: Deferred[None] | None = field(default=None, init=False)
    _patience: float = field(default=0.0, init=False)
    _cutting: IDelayedCall | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        shared = self.shared or SharedLimits.of(self.clock)
        self.unproven, self.round_robin = shared.unproven, shared.round_robin
        self.rejections = shared.rejections
        self.date = self._date()
        if self.meter is not None:
            self.meter.watch(self)

    def accept(self, connection: AcceptedPipe) -> HTTPChannel | None:
        """Return the receiver of a new *connection*, or None to drop it."""
        if self.stopping:
            return None
        channel = self.protocol(self, connection)
        self._channels.add(channel)
        return channel

    @property
    def connections(self) -> int:
        """Number of connections."""
        return len(self._channels)

    @property
    def current(self) -> Iterator[Request]:
        """The requests in progress, streams included."""
        return (channel.request for channel in list(self._channels) if channel.request is not None)

    def forget(self, channel: HTTPChannel) -> None:
        """Remove *channel*, which is closed or has handed its connection over."""
        self._channels.discard(channel)
        if self._stopped is not None and not self._channels:
            stopped, self._stopped = self._stopped, None
            stopped.callback(None)

    def sweep(self) -> None:
        """Enforce the deadlines; to be called once a second."""
        self.date = self._date()
        for channel in list(self._channels):
            channel.tick()
        if self.stopping:
            self._conclude_watches()

    def stop(self, grace: float) -> Deferred[None]:
        """Reject new connections and close idle ones; requests in progress may finish within *grace* s.

        Watches end once no short request is in progress, or after half of that time; their clients continue
        them elsewhere.  Other streams may use all of it; then upgraded connections end with a reason, if
        their protocol allows it.  The result fires when all connections are closed.
        """
        self.stopping = True
        done: Deferred[None] = Deferred()
        if not self._channels:
            done.callback(None)
            return done
        self._stopped = done
        self._cutting = self.clock.callLater(grace, self._end_streams, min(grace, NOTICE_TIME))
        for channel in list(self._channels):
            channel.retire()
        self._patience = self.clock.seconds() + grace / 2
        self._conclude_watches()
        return done.addCallback(self._all_closed)

    def _conclude_watches(self) -> None:
        kinds = {
            request: request_kind(request.method, request.target, request.fields.upgrade)
            for request in self.current
        }
        if SHORT in kinds.values() and self.clock.seconds() < self._patience:
            return
        for request, kind in kinds.items():
            if kind == WATCH and request.exchange is not None:
                request.exchange.conclude()

    def _all_closed(self, result: None) -> None:
        if self._cutting is not None and self._cutting.active():
            self._cutting.cancel()

    def _end_streams(self, patience: float) -> None:
        """Cut all requests; connections that can end with a notice have *patience* s for it."""
        self.cut = sum(1 for _ in self.current)
        self._cutting = self.clock.callLater(patience, self._cut)
        for channel in list(self._channels):
            if channel.upgraded is not None:
                channel.upgraded.end_with(f"{self.farewell}; connect again")
            else:
                self._end(channel)

    def _cut(self) -> None:
        for channel in list(self._channels):
            self._end(channel)

    def _end(self, channel: HTTPChannel) -> None:
        details = {"retryAfterSeconds": 1}
        channel.end(StatusError(503, self.farewell, details=details, close=True))

    def _date(self) -> bytes:
        return b"Date: %b\r\n" % formatdate(self.clock.seconds(), usegmt=True).encode()
