# mypy: untyped-calls-exclude=twisted
"""What both ends of a tunnel's SSH connection do with global requests: keepalives and draining."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.conch.connection.global_requests import Answer, ConnectionService, Mux, RequestRefused, Unanswered
from tower.conch.connection.keepalive import KEEPALIVE, Keepalive
from tower.conch.transport.limits import TransportLimits
from tower.conch.transport.transport import SecureTransport, nothing
from tower.errors import PeerError
from tower.reactor.timers import Clock

#: Sent by the side that will soon be gone: no new streams, please.
DRAIN = b"drain@tower.kubesphere.io"


class PeerDead(PeerError):
    """Nothing came from the peer for too long."""


def _expect_no_answer(failure: Failure) -> None:
    failure.trap(RequestRefused, Unanswered)


class LivenessTransport(SecureTransport):
    """What both ends do with global requests: keepalives, draining.

    :ivar on_drain: called when the peer announces that it will soon be gone.
    """

    __slots__ = ("_keepalive", "connection", "on_drain")

    def _alive(self, data: bytes) -> bytes:
        return b""

    def _drained(self, data: bytes) -> bytes:
        self.on_drain()
        return b""

    answers: ClassVar[Mapping[bytes, Answer]] = {KEEPALIVE: _alive, DRAIN: _drained}
    #: The request that probes the peer.
    probe: ClassVar[bytes] = KEEPALIVE

    def __init__(self, clock: Clock, keepalive: float, limits: TransportLimits) -> None:
        super().__init__(clock, limits)
        self.on_drain: Callable[[], None] = nothing
        self.connection = ConnectionService(clock, self.answers)
        self._keepalive = Keepalive(clock, self.connection, keepalive, self, self.probe)

    @property
    def mux(self) -> Mux | None:
        """What gets the messages 90 to 100 as long as the parsing is not released."""
        return self.connection.mux

    @mux.setter
    def mux(self, mux: Mux | None) -> None:
        self.connection.mux = mux

    @property
    def round_trip(self) -> float | None:
        """How far the peer is away, s; None before the first keepalive; see `Keepalive`."""
        return self._keepalive.round_trip

    def request(self, name: bytes, data: bytes = b"", *, want_reply: bool = True) -> Deferred[bytes]:
        """Send a global request; see `ConnectionService.request`."""
        return self.connection.request(name, data, want_reply=want_reply)

    def nudge(self) -> None:
        """Ask the peer for a sign of life, beside the keepalives."""
        self.request(self.probe).addErrback(_expect_no_answer)

    def drain(self) -> None:
        """Tell the peer that we will soon be gone."""
        self.request(DRAIN, want_reply=False).addErrback(_expect_no_answer)

    def answered(self, name: bytes) -> None:
        """See `Owner.answered`.  Override."""

    def refused(self, name: bytes) -> None:
        """See `Owner.refused`.  Override."""

    def met(self, asked_at: float) -> None:
        """The hellos are exchanged: begin to probe.

        :param asked_at: when we sent what the peer answered with its part; monotonic, s.
        """
        self.greeted()
        self._keepalive.start(self.clock.seconds() - asked_at)

    def ended(self, reason: Exception) -> None:
        """Probe no more."""
        self._keepalive.stop()
        self.connection.serviceStopped()
        self.on_drain = nothing

    def received(self) -> object:
        """See `Watched.received`."""
        return self.opener, self.opener.packets

    def moved(self) -> int:
        """See `Watched.moved`."""
        return self.sealer.octets + self.opener.octets

    def rest(self) -> None:
        """See `Watched.rest`: whoever needs the ciphers next makes them again, in a microsecond."""
        self.sealer.rest()
        self.opener.rest()

    def dead(self) -> None:
        """See `Watched.dead`."""
        self.fail(PeerDead("nothing came from the peer during three keepalive periods"))
