# mypy: untyped-calls-exclude=twisted
"""The two ends of a tunnel's SSH connection, with authentication and the exchange of hellos.

Each end works on any `ITransport`; its `ready` fires after authentication and the exchange of hellos.  Its
owner may then `release` the parsing of packets and take over the hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from twisted.conch.ssh.transport import DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower import __version__
from tower.conch.connection.client import Client
from tower.conch.connection.global_requests import Answer, RequestRefused, Unanswered
from tower.conch.connection.server import Server
from tower.conch.transport.keys import KeyPair, fingerprint
from tower.conch.transport.limits import DEFAULT_LIMITS, TokenBucket, TransportLimits
from tower.errors import PeerError
from tower.kube.member_report import read_report, write_report
from tower.kube.member_status import MemberStatus
from tower.reactor.timers import Clock
from tower.v2.enrol import Claim
from tower.v2.hello import ANNOUNCE, HELLO, MEMBER_STATUS, AgentHello, Announcement, ProxyHello
from tower.v2.peers import AgentPeer, AgentRefused, AuthenticationFailed, HostKeyMismatch, ProxyPeer
from tower.v2.userauth import Gatekeeper, UserAuthClient, UserAuthServer

#: Name of the request with a `MemberStatus`.
STATUS_REPORT = b"member-status@tower.kubesphere.io"

#: Name of the request of a proxy for a check of the member, and the shortest time between two of them, s.
CHECK_REQUEST = b"check-member@tower.kubesphere.io"
CHECK_PAUSE = 1.0

#: Status reports accepted from an agent: burst, and rate per second.
REPORTS = 20.0
REPORTS_RATE = 0.5


@lru_cache(maxsize=16)
def _proxy_hello(host_keys: tuple[str, ...], keepalive: float, ca_hashes: tuple[str, ...]) -> bytes:
    return ProxyHello(
        version=__version__,
        capabilities=(MEMBER_STATUS,),
        host_keys=host_keys,
        keepalive=keepalive,
        ca_hashes=ca_hashes,
    ).encode()


def _ignore(status: MemberStatus) -> None:
    """No-op: no tunnel follows the connection."""


def _connection_over(failure: Failure) -> None:
    failure.trap(Unanswered)


def _check_nothing() -> None:
    """No-op: nothing checks the member."""


def _refuse(_: Announcement) -> None:
    raise RequestRefused("announcements are not stored")


class ServerTransport(Server):
    """The proxy's end.

    :param host_keys: the first is used, all are announced: the next key is the second.
    :param keepalive: interval of keepalives, s.
    :param ca_hashes: announced, too; see `ProxyHello`.
    :ivar ready: fires with an `AgentPeer`, or fails with the reason.
    :ivar on_member_status: called for each status that the agent reports.
    """

    __slots__ = (
        "_accepted_at",
        "_answer",
        "_claim",
        "_hello",
        "_next_check",
        "_reports",
        "on_member_status",
        "ready",
    )

    def __init__(
        self,
        clock: Clock,
        host_keys: Sequence[KeyPair],
        gate: Gatekeeper,
        *,
        keepalive: float = 10.0,
        limits: TransportLimits | None = None,
        ca_hashes: Sequence[str] = (),
    ) -> None:
        super().__init__(clock, host_keys[0], keepalive, limits or DEFAULT_LIMITS)
        self.ready: Deferred[AgentPeer] = Deferred()
        self._answer = _proxy_hello(tuple(key.fingerprint for key in host_keys), keepalive, tuple(ca_hashes))
        self.auth = UserAuthServer(gate, self.limits.tries, self._accepted)
        self._claim: Claim | None = None
        self._accepted_at = 0.0
        self._hello: AgentHello | None = None
        self._reports: TokenBucket | None = None
        self._next_check = 0.0
        self.on_member_status: Callable[[MemberStatus], None] = _ignore

    @property
    def peer(self) -> str:
        """See `PacketTransport.peer`; an unauthenticated peer has no cluster."""
        return "the peer" if self._claim is None else f"the agent of {self._claim.cluster}"

    def _accepted(self, claim: Claim) -> None:
        self._claim = claim
        self._accepted_at = self.clock.seconds()
        self.start_connection()

    def _greet(self, data: bytes) -> bytes:
        if self._hello is not None:
            raise RequestRefused("a second hello")
        self._hello = AgentHello.decode(data)
        return self._answer

    def _report(self, data: bytes) -> bytes:
        if self._hello is None:
            raise PeerError("a member status before the hello")
        now = self.clock.seconds()
        if self._reports is None:
            self._reports = TokenBucket(REPORTS, REPORTS_RATE, now)
        if not self._reports.take(now):
            raise PeerError("too many member statuses")
        self.on_member_status(read_report(data, self.peer))
        return b""

    def request_check(self) -> None:
        """Request that the agent checks its API server now, at most every `CHECK_PAUSE` s."""
        now = self.clock.seconds()
        if now >= self._next_check:
            self._next_check = now + CHECK_PAUSE
            self.request(CHECK_REQUEST, want_reply=False).addErrback(_connection_over)

    answers: ClassVar[Mapping[bytes, Answer]] = {**Server.answers, HELLO: _greet, STATUS_REPORT: _report}

    def answered(self, name: bytes) -> None:
        """Finish the handshake: the hello was answered."""
        if name == HELLO and self._claim is not None and self._hello is not None:
            self.start_keepalives(self._accepted_at)
            self.ready.callback(AgentPeer(self._claim.cluster, self._claim.fingerprint, self._hello))

    def ended(self, reason: Exception) -> None:
        """Fail `ready`; the reasons for rejections are for the log, the agent does not get them."""
        auth = self.auth
        super().ended(reason)
        self.on_member_status = _ignore
        if isinstance(auth, UserAuthServer) and auth.refusals:
            reason = AuthenticationFailed(auth.cluster, auth.refusals, auth.fingerprint)
        if not self.ready.called:
            self.ready.errback(Failure(reason))


class ClientTransport(Client):
    """The agent's end.

    :param pinned: fingerprints of host keys; secrets are sent only to a proxy that has one of them.
    :param token: a join token, if the key is not enrolled yet.
    :param keepalive: interval of keepalives, s.
    :ivar ready: fires with a `ProxyPeer`, or fails with the reason.
    :ivar on_check_request: called when the proxy has a reason to check the member.
    :ivar on_announcement: stores what pins the proxy after a rotation, or raises `RequestRefused`.
    """

    __slots__ = (
        "_asked_at",
        "_cluster",
        "_has_token",
        "_hello",
        "_key",
        "_pinned",
        "on_announcement",
        "on_check_request",
        "ready",
    )

    def __init__(
        self,
        clock: Clock,
        key: KeyPair,
        cluster: str,
        pinned: Collection[str],
        hello: AgentHello,
        *,
        token: str | None = None,
        keepalive: float = 10.0,
        limits: TransportLimits | None = None,
    ) -> None:
        if not pinned:
            raise ValueError("an agent needs the fingerprint of its proxy's host key")
        super().__init__(clock, keepalive, limits or DEFAULT_LIMITS)
        self.ready: Deferred[ProxyPeer] = Deferred()
        self._cluster = cluster
        self._key = key.fingerprint
        self._has_token = token is not None
        self._pinned = frozenset(pinned)
        self._hello = hello
        self._asked_at = 0.0
        self.on_announcement: Callable[[Announcement], None] = _refuse
        self.on_check_request: Callable[[], None] = _check_nothing
        self.auth = UserAuthClient(cluster, key, token, self._accepted, self._refused)

    @property
    def peer(self) -> str:
        """See `PacketTransport.peer`."""
        return "the proxy"

    def report(self, status: MemberStatus) -> None:
        """Send *status* to a proxy with the capability `MEMBER_STATUS`."""
        self.request(STATUS_REPORT, write_report(status), want_reply=False).addErrback(_connection_over)

    def host_key_error(self, host_key: bytes) -> PeerError | None:
        """See `Client.host_key_error`."""
        seen = fingerprint(host_key)
        return None if seen in self._pinned else HostKeyMismatch(seen, self._pinned)

    def _announced(self, data: bytes) -> bytes:
        self.on_announcement(Announcement.decode(data))
        return b""

    def _check_requested(self, _: bytes) -> bytes:
        self.on_check_request()
        return b""

    answers: ClassVar[Mapping[bytes, Answer]] = {
        **Client.answers,
        ANNOUNCE: _announced,
        CHECK_REQUEST: _check_requested,
    }

    def _accepted(self) -> None:
        self.start_connection()
        self._asked_at = self.clock.seconds()
        self.request(HELLO, self._hello.encode()).addCallback(self._greeted).addErrback(self._not_greeted)

    def _greeted(self, reply: bytes) -> None:
        hello = ProxyHello.decode(reply)
        assert self.host_key is not None
        self.start_keepalives(self._asked_at)
        self.ready.callback(ProxyPeer(self._cluster, fingerprint(self.host_key), hello))

    def _not_greeted(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, RequestRefused):
            self.fail(PeerError("the proxy does not answer the hello"))
        elif isinstance(error, PeerError):
            self.fail(error)
        else:
            failure.trap(Unanswered)

    def _refused(self, notice: str) -> None:
        error = AgentRefused(self._cluster, self._key, notice, has_token=self._has_token)
        self.fail(error, DISCONNECT_NO_MORE_AUTH_METHODS_AVAILABLE)

    def ended(self, reason: Exception) -> None:
        """Fail `ready`."""
        super().ended(reason)
        self.on_announcement, self.on_check_request = _refuse, _check_nothing
        if not self.ready.called:
            self.ready.errback(Failure(reason))
