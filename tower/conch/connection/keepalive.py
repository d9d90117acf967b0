# mypy: untyped-calls-exclude=twisted
"""Keepalives: detect a dead peer and measure the round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from tower.conch.connection.global_requests import ConnectionService, RequestRefused, Unanswered
from tower.reactor.timers import Clock, DelayedCall

if TYPE_CHECKING:
    from tower.conch.connection.liveness import LivenessTransport

#: Name of the request, as in OpenSSH; any reply will do, also a refusal.
KEEPALIVE = b"keepalive@openssh.com"

#: Round trips that are remembered; the shortest counts.
_REMEMBERED = 6

#: A probe with at most this much other traffic until its reply did not wait behind data, B.
_FREE = 64 * 1024

#: Delay of the first probe, s: while a tunnel opens the peer is busy with other work.
_SOON = 2.0


class Keepalive:
    """Sends a probe each *interval* and gives up a silent peer within three of them.

    Everything that the peer sends is a sign of life, so a peer busy with bulk data need not reply in time.
    It is given up when nothing arrived during two whole intervals, with a probe before each: at most three
    intervals after its last sign of life.  Unread data is read first, so a process that itself stood still
    gives up no peer.

    The round trip is the shortest of the last replies.  A probe waits behind bulk data, and windows that grew
    with that wait would make it longer.  So a longer time counts only if the path was free, and a tunnel that
    is never free keeps its shortest time.

    After each reply the transport releases its ciphers: on an idle connection the next probe is their next
    use.

    :param interval: s; 0: measure the round trip once more and give up no peer.
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
        peer: LivenessTransport,
        probe: bytes = KEEPALIVE,
    ) -> None:
        self._clock = clock
        self._service = service
        self._interval = interval
        self._peer: LivenessTransport | None = peer
        self._probe_with = probe
        self._timer: DelayedCall | None = None
        self._first: DelayedCall | None = None
        self._asked = False
        self._before: object = None
        self._silent = 0
        self._times: list[float] = []
        self.round_trip: float | None = None

    def start(self, took: float) -> None:
        """Send the first probe soon, then one each interval.

        :param took: time of the handshake's last request, s: the first measurement.
        """
        assert self._peer is not None
        self._measured(took, is_free=True)
        self._peer.release_ciphers()
        self._first = self._clock.callLater(_SOON, self._probe_first)
        if self._interval > 0:
            self._before = self._peer.received()
            self._timer = self._clock.callLater(self._interval, self._tick)

    def stop(self) -> None:
        """Stop probing and drop references."""
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
            self._timer = self._clock.callLater(0, self._judge)  # after the reactor has polled its sockets
            return
        self._timer = self._clock.callLater(self._interval, self._tick)
        self._probe()

    def _judge(self) -> None:
        """Give up the peer, unless unread data of it arrived."""
        assert self._peer is not None
        if self._peer.received() == self._before:
            self._timer = None
            self._peer.give_up()
            return
        self._tick()

    def _probe(self) -> None:
        """Send a probe, unless the last one is unanswered."""
        peer = self._peer
        if self._asked or peer is None:
            return
        self._asked = True
        asked_at, before = self._clock.seconds(), peer.bytes_moved()

        def answered(_: object) -> None:
            self._asked = False
            if self._peer is not None:
                moved = self._peer.bytes_moved() - before
                self._measured(self._clock.seconds() - asked_at, is_free=0 <= moved <= _FREE)
                self._peer.release_ciphers()

        def refused(failure: Failure) -> None:
            if failure.check(RequestRefused):
                answered(None)
            else:
                failure.trap(Unanswered)

        self._service.request(self._probe_with).addCallbacks(answered, refused)

    def _measured(self, took: float, *, is_free: bool) -> None:
        """Record the time of a reply."""
        if is_free or self.round_trip is None or took < self.round_trip:
            self._times = [*self._times[1 - _REMEMBERED :], took]
            self.round_trip = min(self._times)
