"""Tunnels in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed

from tests.fakes.pipes import FakePipe
from tower.kube.member_status import MemberStatus
from tower.tunnels.live import CheckMember

#: When tunnels were opened, s since the epoch.
NOW = 1_700_000_000.0


class Unread:
    """The receiver of a pipe that has none yet."""

    def received(self, data: memoryview) -> None:
        """Fail: nothing may arrive yet."""
        raise AssertionError("bytes without a receiver")

    def ended(self) -> None:
        """Ignore it."""

    def drained(self) -> None:
        """Ignore it."""

    def closed(self, reason: Exception) -> None:
        """Ignore it."""


@define(eq=False)
class FakeTunnel:
    """A `tower.tunnels.Tunnel` that opens `FakePipe`s and records why it was closed.

    :ivar rewrite: what `rewrite_for` returns for the API server.
    :ivar at_once: whether a stream opens at once, or when the test calls `confirm`.
    """

    name: str = "alpha"
    fingerprint: str = "SHA256:agent"
    host: str = "edge-1"
    version: str = "1.2.3"
    peer: str = "192.0.2.1:4711"
    server: bytes = b"10.0.0.1:6443"
    since: float = NOW
    draining: bool = False
    member_status: MemberStatus | None = None
    check_member: CheckMember | None = None
    round_trip: float = 0.0042
    streams: int = 3
    protocol: str = "tower-v2"
    on_change: Callable[[], None] = lambda: None
    request_check: Callable[[], None] = lambda: None
    rewrite: Callable[[bytes, bool], bytes] | None = None
    at_once: bool = True
    pipes: list[FakePipe] = field(factory=list)
    targets: list[str] = field(factory=list)
    openings: list[Deferred[FakePipe]] = field(factory=list)
    closings: list[str] = field(factory=list)
    bytes_in: int | None = 0
    nudges: int = 0

    def nudge(self) -> None:
        """Count the probe."""
        self.nudges += 1

    def rewrite_for(self, target: str) -> Callable[[bytes, bool], bytes] | None:
        """Return `rewrite`, for the API server."""
        return self.rewrite if target == "kubernetes" else None

    def open(self, target: str) -> Any:
        """Open a stream."""
        self.targets.append(target)
        opening: Deferred[FakePipe] = Deferred()
        self.openings.append(opening)
        if self.at_once:
            self.confirm()
        return opening

    def confirm(self) -> FakePipe:
        """Let the last stream open."""
        pipe = FakePipe()
        pipe.receiver = Unread()
        self.pipes.append(pipe)
        self.openings[-1].callback(pipe)
        return pipe

    def drain(self) -> None:
        """Ignore it."""

    def close(self, reason: str) -> None:
        """Record why."""
        self.closings.append(reason)


class FakeSSHTunnel:
    """The agent's or proxy's end of a `tower.conch.tunnel.tunnel.SSHTunnel`, which records calls.

    :ivar calls: names of the called methods.
    :ivar opened: kind and data of opened channels.
    :ivar closings: reasons of `close`.
    :ivar stubborn: whether `close` does not end the connection.
    """

    def __init__(self, peer: str = "192.0.2.1:8443", *, stubborn: bool = False) -> None:
        self.lost: Deferred[Exception] = Deferred()
        self.on_change: Callable[[], None] = lambda: None
        self.draining = False
        self.peer, self.version = peer, "1"
        self.since, self.round_trip, self.streams = 1_800_000_000.0, 0.1, 0
        self.calls: list[str] = []
        self.opened: list[tuple[bytes, bytes]] = []
        self.closings: list[str] = []
        self.stubborn = stubborn
        self.pipe = FakePipe()

    def open_channel(self, kind: bytes, data: bytes) -> Deferred[Any]:
        """Open a channel; all channels are the same `FakePipe`."""
        self.opened.append((kind, data))
        return succeed(self.pipe)

    def drain(self) -> None:
        """Record the call."""
        self.calls.append("drain")

    def close(self, reason: str) -> None:
        """Record the reason; lose the connection, unless `stubborn`."""
        self.calls.append("close")
        self.closings.append(reason)
        if not self.stubborn:
            self.lose()

    def abort(self) -> None:
        """Record the call; lose the connection."""
        self.calls.append("abort")
        self.lose()

    def lose(self) -> None:
        """Lose the connection."""
        self.lost.callback(ConnectionError("cut"))

    def drained_by_peer(self) -> None:
        """Start draining, as the peer requests."""
        self.draining = True
        self.on_change()
