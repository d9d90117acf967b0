"""The user's side of the gateway: who listens, and what a router, a chain and a composition root meet.

* `Gateway`: one for each router.  ``tower.net.listening.listen(reactor, port, host, gateway.accept, tls)`` makes
  it serve, on as many ports as wanted; a ``TimerService(1.0, gateway.sweep)`` keeps its deadlines;
  `Gateway.stop` ends its connections.  The front door and a per-cluster port differ in the router alone:
  a per-cluster port's router fixes the cluster and answers with a `Relay` without a prefix.
* **router**: ``router(request) -> Outcome | Deferred[Outcome]``, or it raises; see `tower.web.outcome`.
  It is called when the head of the request is here; a body may still be on its way.
* `tower.web.gateway.http_channel.HTTPChannel`: the receiver of one user's connection.  Its ``requestFactory`` makes
  the requests, as in ``twisted.web.http``; a subclass of it is installed as `Gateway.protocol`.
* `tower.web.gateway.request.Request`: one request.  Its ``proxyClientFactoryClass`` relays it, as in
  ``twisted.web.proxy``: `tower.web.gateway.relay.ProxyClientFactory`, whose ``protocol`` is ``ProxyClient``.
* `tower.web.gateway.channel_pool.ChannelPool`: the pooled channels into the clusters, shared by all gateways.

What a router and its chain find on a `Request`: ``method``, ``target``, ``path``, ``query`` (bytes);
``fields`` (`tower.http.requests.Fields`: ``bearer``, ``foreign``, ``upgrade``, ``get(b"accept")``);
``certificate`` (DER or None, read once for each connection); ``body(limit)`` (a ``Deferred[bytes]``, for
answers made here); ``request_id``.  What they leave there: ``identity``, without which nothing is relayed.
``request.channel.authenticated`` is a place to keep, for the next requests of the same connection, whatever
the authenticator wants to find again; it has to hold what the verdict depended on, such as the token.

``request.channel.standing`` is where a router keeps what it decided, for the requests that are like it.

`Request.target` has no dot segment, no ``#``, and printable ASCII only.  The part of it that is Tower's own
(`Relay.prefix`) is for the router to check; what follows is relayed byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from tower.kube.status import StatusError
from tower.net.budget import Budget, UnauthenticatedBudget
from tower.reactor.log_batch import Summary
from tower.web.access.audit import Audit
from tower.web.gateway.channel_pool import ChannelPool
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.inflight import InFlight
from tower.web.gateway.peer import UserConnection
from tower.web.gateway.request import Request
from tower.web.gateway.round_robin import RoundRobin
from tower.web.outcome import Outcome

#: What a gateway without a share in the process's budget keeps of what it cannot place yet, B.
UNPLACED = 16 * 1024 * 1024

#: The same of what strangers keep, B.
UNPLACED_STRANGERS = 2 * 1024 * 1024

Router: TypeAlias = Callable[[Request], "Outcome | Deferred[Outcome]"]


class Clock(Protocol):
    """The part of a reactor that is needed here."""

    def seconds(self) -> float:
        """Return the time, s since the epoch."""

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Any:  # noqa: A002
        """Call *callable* after *delay* s."""


class Sessions(Protocol):
    """What is needed of `tower.web.access.sessions.Sessions`."""

    def enter(self, identity: Any, cluster: str, abort: Callable[[str], None]) -> Any:
        """Note that *identity* uses *cluster* ("" is Tower's own API); *abort* ends that use."""

    def leave(self, session: Any) -> object:
        """Note the end of what `enter` returned."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a user's connection may take.

    :ivar first_byte: for a new connection's first byte, s.
    :ivar head: from the first byte of a head to its last, s.
    :ivar idle: between an answer and the next request, s.
    :ivar body: for a body that is read here, s.
    :ivar answer: for the first byte of the cluster's answer, s; long-running requests are excepted.
    :ivar stalled: for a user who takes nothing of what was sent, s.
    :ivar stranger: how long a connection lives on which no valid credential is shown, s.
    :ivar stranger_stalled: for such a one who takes nothing of what was sent, s.
    """

    first_byte: float = 30.0
    head: float = 10.0
    idle: float = 120.0
    body: float = 30.0
    answer: float = 120.0
    stalled: float = 3600.0
    stranger: float = 120.0
    stranger_stalled: float = 10.0


@dataclass(frozen=True, slots=True)
class Common:
    """What all gateways of a process share, so that a stranger has no more of it for using several ports.

    :ivar strangers: memory for connections on which no valid credential was shown.
    :ivar turns: for pipelined requests.
    :ivar rejections: writes the lines of log that strangers cause.
    """

    strangers: UnauthenticatedBudget
    turns: RoundRobin
    rejections: Summary

    @classmethod
    def of(cls, clock: Clock, strangers: int = UNPLACED_STRANGERS) -> Self:
        """Return a new one.

        :param strangers: how much they may keep together, B.
        """
        log = Logger(namespace="tower.web.gateway.request.Request")
        return cls(UnauthenticatedBudget(strangers, clock.seconds), RoundRobin(clock), Summary(clock, log))


class Gateway:
    """Serves users' connections.

    :param clock: the reactor, or a clock.
    :param router: decides what becomes of each request.
    :param pool: the channels into the clusters.
    :param sessions: ends what an expired or revoked credential still uses.
    :param budget: lends memory for what users send faster than it can be placed; one of its own if None.
    :param inflight: how many requests there may be at one time; None: any number.
    :param audit: writes down who asks what; None: nobody does.
    :param common: what gateways share; of its own if None.
    :ivar protocol: the class of the connections' receivers.
    :ivar requests: how many requests came.
    :ivar failures: how many were answered with a Status of our own.
    :ivar date: the time, as a ``Date`` line.
    """

    protocol: ClassVar[type[HTTPChannel]] = HTTPChannel

    def __init__(
        self,
        clock: Clock,
        router: Router,
        pool: ChannelPool,
        sessions: Sessions,
        limits: RequestLimits | None = None,
        budget: Budget | None = None,
        inflight: InFlight | None = None,
        audit: Audit | None = None,
        common: Common | None = None,
    ) -> None:
        self.clock = clock
        self.router = router
        self.pool = pool
        self.sessions = sessions
        self.limits = limits or RequestLimits()
        self.budget = budget or Budget(UNPLACED)
        self.inflight = inflight
        self.audit = audit
        common = common or Common.of(clock)
        self.strangers, self.turns, self.rejections = common.strangers, common.turns, common.rejections
        self.requests = self.failures = 0
        self.stopping = False
        self._channels: set[HTTPChannel] = set()
        self._stopped: Deferred[None] | None = None
        self.date = self._date()

    def accept(self, connection: UserConnection) -> HTTPChannel | None:
        """Return the receiver of a new *connection*, or None to drop it."""
        if self.stopping:
            return None
        channel = self.protocol(self, connection)
        self._channels.add(channel)
        return channel

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._channels)

    def forget(self, channel: HTTPChannel) -> None:
        """Note that *channel* is closed or has given its connection away."""
        self._channels.discard(channel)
        if self._stopped is not None and not self._channels:
            stopped, self._stopped = self._stopped, None
            stopped.callback(None)

    def sweep(self) -> None:
        """Keep the deadlines; to be called once a second."""
        self.date = self._date()
        for channel in list(self._channels):
            channel.tick()

    def stop(self, grace: float) -> Deferred[None]:
        """Take no more connections and close the idle ones; others may finish within *grace* s.

        The result fires when the last one is closed.
        """
        self.stopping = True
        done: Deferred[None] = Deferred()
        if not self._channels:
            done.callback(None)
            return done
        self._stopped = done
        cut = self.clock.callLater(grace, self._cut)
        for channel in list(self._channels):
            channel.retire()

        return done.addCallback(self._all_closed, cut)

    def _all_closed(self, result: None, cut: Any) -> None:
        if cut.active():
            cut.cancel()

    def _cut(self) -> None:
        for channel in list(self._channels):
            channel.end(
                StatusError(503, "this proxy is stopping", details={"retryAfterSeconds": 1}, close=True)
            )

    def _date(self) -> bytes:
        return b"Date: %b\r\n" % formatdate(self.clock.seconds(), usegmt=True).encode()
