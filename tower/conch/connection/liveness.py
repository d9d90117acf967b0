# mypy: untyped-calls-exclude=twisted
"""Keepalives, draining and the end of authentication, for both ends of a tunnel's SSH connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from twisted.conch.ssh.service import SSHService
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.conch.connection.global_requests import Answer, ConnectionService, RequestRefused, Unanswered
from tower.conch.connection.keepalive import KEEPALIVE, Keepalive
from tower.conch.transport.limits import TransportLimits
from tower.conch.transport.packet_transport import do_nothing
from tower.conch.transport.transport import SecureTransport
from tower.errors import PeerError
from tower.reactor.timers import Clock

#: Sent by the side that will soon close: open no new streams.
DRAIN = b"drain@tower.kubesphere.io"


class PeerDead(PeerError):
    """The peer sent nothing for too long."""


def _expect_no_answer(failure: Failure) -> None:
    failure.trap(RequestRefused, Unanswered)


class LivenessTransport(SecureTransport):
    """An SSH transport with keepalives and draining.

    :ivar auth: the authentication service; None when authentication is over.
    :ivar on_drain: called when the peer announces that it will soon close.
    """

    __slots__ = ("_keepalive", "auth", "connection", "on_drain")

    def _alive(self, data: bytes) -> bytes:
        return b""

    def _drained(self, data: bytes) -> bytes:
        self.on_drain()
        return b""

    answers: ClassVar[Mapping[bytes, Answer]] = {KEEPALIVE: _alive, DRAIN: _drained}
    #: Name of the keepalive request.
    probe: ClassVar[bytes] = KEEPALIVE

    def __init__(self, clock: Clock, keepalive: float, limits: TransportLimits) -> None:
        super().__init__(clock, limits)
        self.auth: SSHService | None = None
        self.on_drain: Callable[[], None] = do_nothing
        self.connection = ConnectionService(clock, self.answers)
        self._keepalive = Keepalive(clock, self.connection, keepalive, self, self.probe)

    @property
    def round_trip(self) -> float | None:
        """To the peer, s; None before the first keepalive; see `Keepalive`."""
        return self._keepalive.round_trip

    def request(self, name: bytes, data: bytes = b"", *, want_reply: bool = True) -> Deferred[bytes]:
        """Send a global request; see `ConnectionService.request`."""
        return self.connection.request(name, data, want_reply=want_reply)

    def nudge(self) -> None:
        """Send a probe now, in addition to the keepalives."""
        self.request(self.probe).addErrback(_expect_no_answer)

    def drain(self) -> None:
        """Announce to the peer that we will soon close."""
        self.request(DRAIN, want_reply=False).addErrback(_expect_no_answer)

    def answered(self, name: bytes) -> None:
        """Called when a request of that name was answered with success.  Override."""

    def refused(self, name: bytes) -> None:
        """Called when a request of that name was refused.  Override."""

    def start_connection(self) -> None:
        """Start ``ssh-connection``: authentication has succeeded."""
        self.authenticated()
        self.setService(self.connection)
        self.auth = None

    def start_keepalives(self, asked_at: float) -> None:
        """Start keepalives: the handshake is over.

        :param asked_at: when we sent the message that the peer answered last; monotonic, s.
        """
        self.handshake_done()
        self._keepalive.start(self.clock.seconds() - asked_at)

    def ended(self, reason: Exception) -> None:
        """Stop keepalives, global requests and authentication."""
        self._keepalive.stop()
        self.connection.serviceStopped()
        self.on_drain = do_nothing
        auth, self.auth = self.auth, None
        if auth is not None:
            auth.serviceStopped()

    def received(self) -> object:
        """Return a value that changes whenever something is received."""
        return self.opener, self.opener.packets

    def bytes_moved(self) -> int:
        """Return the bytes sealed and opened so far; starts again when keys change."""
        return self.sealer.octets + self.opener.octets

    def release_ciphers(self) -> None:
        """Free the ciphers of an idle connection; the next use makes them again, in a microsecond."""
        self.sealer.release_cipher()
        self.opener.release_cipher()

    def give_up(self) -> None:
        """Close because of a silent peer; called by `Keepalive`."""
        self.fail(PeerDead("the peer sent nothing during three keepalive intervals"))
