"""A live tunnel, and a stream in it: the interfaces of all kinds of tunnels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from tower.kube.member_status import MemberStatus
from tower.net.pipes import Pipe

#: Returns a head as it is sent, from its canonical form and whether to omit impersonation headers.
Rewrite: TypeAlias = Callable[[bytes, bool], bytes]

#: Checks the API server behind a tunnel.
CheckMember: TypeAlias = Callable[[], Awaitable[MemberStatus]]


class Tunnel(Protocol):
    """A live tunnel into a cluster, such as an agent's `tower.conch.tunnel.tunnel.SSHTunnel`.

    :ivar name: the cluster.
    :ivar fingerprint: of the agent's key.
    :ivar host: name of the agent's host or pod; empty if unknown.
    :ivar since: when it opened, s since the epoch.
    :ivar draining: whether it accepts no new streams.
    :ivar member_status: the state of the API server behind it, as the agent or the proxy found it; None: not
        known yet, or the agent does not report it.
    :ivar request_check: requests that the agent checks the API server now; no-op if `check_member` does.
    :ivar on_change: called when `draining` or `member_status` changes.
    """

    name: str
    fingerprint: str
    host: str
    version: str
    peer: str
    since: float
    draining: bool
    member_status: MemberStatus | None
    on_change: Callable[[], None]
    request_check: Callable[[], None]

    @property
    def server(self) -> bytes:
        """Authority and path of the API server; empty if unknown."""

    @property
    def protocol(self) -> str:
        """Protocol of the tunnel, such as ``tower-v2``."""

    def rewrite_for(self, target: str) -> Rewrite | None:
        """Return the function that completes heads for *target*; None if the agent does, or nothing does.

        It raises `tower.kube.status.StatusError` if the cluster's policy rejects the request.
        """

    @property
    def check_member(self) -> CheckMember | None:
        """Check the API server; None: the agent does, and reports it."""

    @property
    def round_trip(self) -> float:
        """To the agent, s; 0 while unknown."""

    @property
    def streams(self) -> int:
        """Number of open streams."""

    @property
    def bytes_in(self) -> int | None:
        """Bytes received from the agent, answers to probes included; None: not counted."""

    def nudge(self) -> None:
        """Send the agent a probe, which it answers at once."""

    def open(self, target: str) -> Deferred[Any]:
        """Open a stream to *target*; fires with a paused `TunnelChannel`."""

    def drain(self) -> None:
        """Announce to the agent that the proxy is stopping."""

    def close(self, reason: str) -> None:
        """Close the tunnel; the agent receives *reason*."""


class TunnelChannel(Pipe, Protocol):
    """A stream in a tunnel: a `tower.conch.connection.channel.Channel`, or TLS inside one (`TLSPipe`)."""

    @property
    def is_large(self) -> bool:
        """Whether its window is large, on either side."""

    @property
    def is_leaving(self) -> bool:
        """Whether its tunnel is draining, so that it must not be reused."""
