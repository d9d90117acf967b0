# mypy: untyped-calls-exclude=twisted
"""Probing the peer: is it there, and how far away."""

from __future__ import annotations

from typing import Protocol

from twisted.python.failure import Failure

from tower.conch.connection.global_requests import ConnectionService, RequestRefused, Unanswered
from tower.reactor.timers import Call, Clock

#: The request's name, as OpenSSH calls it; any answer will do, a refusal too.
KEEPALIVE = b"keepalive@openssh.com"


#: Answers whose time is remembered.
_REMEMBERED = 6

#: With no more than this going to and fro in the meantime, a probe found the way free, B.
_FREE = 64 * 1024

#: When to probe first, s: while a tunnel is being opened the peer has a lot to do besides answering.
_SOON = 2.0


class Watched(Protocol):
    """What a `Keepalive` needs of the transport that it belongs to."""

    def received(self) -> object:
        """Return something that differs whenever something came in between two calls."""

    def moved(self) -> int:
        """Return how many bytes went to and fro so far; it may begin anew, when keys are changed."""

    def dead(self) -> None:
        """Called, once, when the peer is given up."""

    def rest(self) -> None:
        """Let go of what an idle connection can do without."""


class Keepalive:
    """Sends a probe each *interval* and gives the peer up within three of them.

    Everything the peer sends counts as a sign of life, so a peer busy with bulk data need not answer in
    time.  It is given up when nothing came during two whole intervals, with a probe sent before each: that
    is at most three intervals after its last sign of life, at whatever point of an interval it was given.
    What has come by then and was not read yet is read before, so a process that stood still itself, on a
    machine that had no time for it, gives up nobody for that.

    The round trip is the shortest of the last answers.  A probe waits behind bulk data, and windows that grew
    with that wait would make it longer: so a longer time counts only if the way was free, and a tunnel that
    is never free keeps the shortest time there ever was.

    After each answer the peer is told to rest: if nobody uses the connection, the next to use it is the next
    probe.

    :param interval: s; 0 means to measure the round trip once more and to give up nobody.
    :param peer: who is watched.
    :param probe: the request's name.
    :ivar round_trip: s; None before `start`.
    """

    __slots__ = (
        "_asked",
        "_before",
        "_clock",
        "_first",
        "_interval",
        "_peer",
        "_probe_with",
        "_service",
        "_silent",
        "_timer",
        "_times",
        "round_trip",
    )

    def __init__(
        self,
        clock: Clock,
        service: ConnectionService,
        interval: float,
        peer: Watched,
        probe: bytes = KEEPALIVE,
    ) -> None:
        self._clock = clock
        self._service = service
        self._interval = interval
        self._peer: Watched | None = peer
        self._probe_with = probe
        self._timer: Call | None = None
        self._first: Call | None = None
        self._asked = False
        self._before: object = None
        self._silent = 0
        self._times: list[float] = []
        self.round_trip: float | None = None

    def start(self, took: float) -> None:
        """Probe soon, to know the round trip better, and then each interval.

        :param took: how long the peer took for what it was asked before, s: the first measure.
        """
        assert self._peer is not None
        self._measured(took, is_free=True)
        self._peer.rest()
        self._first = self._clock.callLater(_SOON, self._probe_first)
        if self._interval > 0:
            self._before = self._peer.received()
            self._timer = self._clock.callLater(self._interval, self._tick)

    def stop(self) -> None:
        """Probe no more, and forget whom to ask and to tell."""
        for timer in (self._timer, self._first):
            if timer is not None:
                timer.cancel()
        self._timer = self._first = self._peer = None

    def _probe_first(self) -> None:
        self._first = None
        self._probe()

    def _tick(self) -> None:
        assert self._peer is not None
        now = self._peer.received()
        self._silent = self._silent + 1 if now == self._before else 0
        self._before = now
        if self._silent >= 2:
            self._timer = self._clock.callLater(0, self._judge)  # when the reactor has looked at its sockets
            return
        self._timer = self._clock.callLater(self._interval, self._tick)
        self._probe()

    def _judge(self) -> None:
        """Give the peer up, unless something of it was waiting to be read."""
        assert self._peer is not None
        if self._peer.received() == self._before:
            self._timer = None
            self._peer.dead()
            return
        self._tick()

    def _probe(self) -> None:
        """Ask, unless the last question is still open."""
        peer = self._peer
        if self._asked or peer is None:
            return
        self._asked = True
        asked_at, before = self._clock.seconds(), peer.moved()

        def answered(_: object) -> None:
            self._asked = False
            if self._peer is not None:
                moved = self._peer.moved() - before
                self._measured(self._clock.seconds() - asked_at, is_free=0 <= moved <= _FREE)
                self._peer.rest()

        def refused(failure: Failure) -> None:
            if failure.check(RequestRefused):
                answered(None)
            else:
                failure.trap(Unanswered)

        self._service.request(self._probe_with).addCallbacks(answered, refused)

    def _measured(self, took: float, *, is_free: bool) -> None:
        """Note how long an answer took."""
        if is_free or self.round_trip is None or took < self.round_trip:
            self._times = [*self._times[1 - _REMEMBERED :], took]
            self.round_trip = min(self._times)
