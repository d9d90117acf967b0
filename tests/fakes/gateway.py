"""A gateway in memory: users, tunnels and channels are `FakePipe`s, the clock stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.pipes import FakePipe
from tests.fakes.tunnels import FakeTunnel
from tower.errors import ClusterUnreachable
from tower.net.budget import Budget
from tower.net.connection import Connection
from tower.net.pipes import Buffer
from tower.tunnels import Tunnels
from tower.tunnels.counters import ClusterCounters
from tower.tunnels.silence import Silences
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.sessions import Sessions
from tower.web.gateway.gateway import UNPLACED, Gateway, RequestLimits
from tower.web.gateway.measurements import RequestMeter
from tower.web.gateway.request import Request
from tower.web.gateway.upstream.channel_pool import ChannelPool
from tower.web.outcome import Outcome, Relay

#: The fields that the proxy adds after the user's own fields, for the user below.
FORWARDING = b"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nVia: 1.1 tower\r\n"
IDENTITY = b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\nImpersonate-Group: qa\r\n"


@define(eq=False)
class Jane:
    """A user."""

    user: str = "jane"
    groups: tuple[str, ...] = ("dev", "qa")
    token: bytes = b""
    session: str = ""
    is_trusted_caller: bool = False
    is_acting: bool = False

    @property
    def in_member(self) -> UserInfo:
        """The user as the member knows it."""
        return UserInfo(self.user, self.groups)

    def member_token(self, bearer: bytes | None) -> None:
        """Return None: it has none."""

    def uses(self, bearer: bytes) -> bool:
        """Return whether *bearer* is the token of this identity."""
        return bearer == self.token


class FakeUser(FakePipe):
    """A user's connection."""

    certificate: bytes | None = b"DER"

    def __init__(self) -> None:
        super().__init__()
        self.paused = False
        self.bytes_in = self.bytes_out = 0

    def send(self, data: Buffer) -> bool:
        """Count and record *data*."""
        self.bytes_out += len(data)
        return super().send(data)

    def deliver(self, data: bytes) -> None:
        """Count and deliver *data*."""
        self.bytes_in += len(data)
        super().deliver(data)

    def peer_certificate(self) -> bytes | None:
        """Return `certificate`."""
        return self.certificate

    def getPeer(self) -> IPv4Address:
        """Return the address of a user."""
        return IPv4Address("TCP", "192.0.2.7", 4711)


@define(eq=False)
class FakeTunnels:
    """The tunnels of one cluster."""

    tunnels: list[FakeTunnel] = field(factory=list)
    waiting: list[Deferred[FakeTunnel]] = field(factory=list)
    clock: Clock = field(factory=Clock)
    counters: ClusterCounters = field(factory=ClusterCounters)
    outcomes: list[bool] = field(factory=list)

    def note_outcome(self, tunnel: FakeTunnel, *, reached: bool) -> None:
        """Record whether the API server was reached."""
        self.outcomes.append(reached)

    def pick(self, cluster: str) -> Any:
        """Return the last tunnel."""
        return self.tunnels[-1] if self.tunnels else None

    def live(self, cluster: str) -> Any:
        """Return all tunnels."""
        return list(self.tunnels)

    def wait(self, cluster: str, timeout: float) -> Any:
        """Return a Deferred for a tunnel."""
        waiting: Deferred[FakeTunnel] = Deferred()
        self.waiting.append(waiting)
        waiting.addTimeout(timeout, self.clock)

        def nobody(failure: Any) -> None:
            raise ClusterUnreachable(
                f"no agent of cluster {cluster} is connected; one was last seen 42 s ago"
            )

        return waiting.addErrback(nobody)


@define(eq=False)
class FakeSessions:
    """Records the current sessions."""

    inside: list[tuple[Any, str, Callable[[str], None]]] = field(factory=list)
    entered: int = 0

    def enter(self, identity: Any, cluster: str, abort: Callable[[str], None]) -> Any:
        """Begin a session."""
        self.entered += 1
        session = (identity, cluster, abort)
        self.inside.append(session)
        return session

    def leave(self, session: Any) -> None:
        """End a session."""
        self.inside.remove(session)


def connection(user: FakeUser) -> Connection:
    """Return *user* as the type of a real connection."""
    return cast(Connection, user)


def pool(tunnels: FakeTunnels, **options: Any) -> ChannelPool:
    """Return a pool of channels in *tunnels*."""
    seconds = tunnels.clock.seconds
    return ChannelPool(cast(Tunnels, tunnels), seconds, Silences(seconds), **options)


def as_sessions(sessions: FakeSessions) -> Sessions:
    """Return *sessions* as the type of the real ones."""
    return cast(Sessions, sessions)


class Kit:
    """A gateway with one user and one tunnel to cluster alpha."""

    def __init__(
        self,
        router: Any = None,
        limits: RequestLimits | None = None,
        prefix: bytes = b"/clusters/alpha",
        budget: Budget | None = None,
        scope: bytes = b"",
        meter: RequestMeter | None = None,
    ) -> None:
        self.clock = Clock()
        self.tunnel = FakeTunnel()
        self.tunnels = FakeTunnels([self.tunnel], clock=self.clock)
        self.sessions = FakeSessions()
        self.pool = pool(self.tunnels)
        self.jane: Any = Jane()
        self.requests: list[Request] = []
        self._relay = Relay("alpha", prefix, scope=scope)
        self._router = router or self.relay_it
        self.gateway = Gateway(
            self.clock,
            self.route,
            self.pool,
            as_sessions(self.sessions),
            limits or RequestLimits(),
            budget or Budget(UNPLACED),
            meter=meter,
        )
        self.user = self.connect()

    def connect(self) -> FakeUser:
        """Connect a new user."""
        user = FakeUser()
        channel = self.gateway.accept(connection(user))
        assert channel is not None
        user.receiver = channel
        return user

    def route(self, request: Request) -> Outcome | Deferred[Outcome]:
        """Record the request and route it."""
        self.requests.append(request)
        result: Outcome | Deferred[Outcome] = self._router(request)
        return result

    def relay_it(self, request: Request) -> Outcome:
        """Relay the request as jane."""
        request.identity = self.jane
        return self._relay

    def take_turns(self) -> None:
        """Serve all pipelined requests that wait for their turn."""
        while len(self.gateway.round_robin):
            self.clock.advance(0)

    @property
    def pipe(self) -> FakePipe:
        """The channel that was opened last."""
        return self.tunnel.pipes[-1]

    def sweep(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self.gateway.sweep()


def get(
    target: bytes = b"/clusters/alpha/api", *fields: bytes, method: bytes = b"GET", body: bytes = b""
) -> bytes:
    """Return a request."""
    lines = [b"%b %b HTTP/1.1" % (method, target), b"Host: tower:8443", *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def ok(body: bytes = b"{}", *fields: bytes) -> bytes:
    """Return an answer."""
    lines = [b"HTTP/1.1 200 OK", *fields, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
