"""Pinned channels into the clusters, kept for the next request.

A channel is pinned to one TLS connection that the agent holds to its API server.  Opening one costs a dial
and a handshake there, so channels are used again, the last used first; an unused one is closed before the
API server would close it (`IDLE`), since a request that meets a closing connection is a failed request.
"""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred, fail

from tower.errors import ClusterUnreachable
from tower.pipes import Pipe
from tower.web.outcome import Relay

#: How long a request waits for a cluster whose agent is reconnecting, s.
WAIT = 5.0

#: How long an unused channel is kept, s; API servers close idle connections after 90 s.
IDLE = 60.0

#: How many unused channels are kept for each tunnel and target.
KEPT = 32


class Tunnel(Protocol):
    """What is needed of `tower.conch.tunnel.Tunnel`."""

    @property
    def draining(self) -> bool:
        """Whether it takes no new streams."""

    def open(self, target: str) -> Deferred[Pipe]:
        """Open a stream; it comes paused."""


class Tunnels(Protocol):
    """What is needed of `tower.tunnels.Tunnels`."""

    def pick(self, cluster: str) -> Tunnel | None:
        """Return a live tunnel that is not draining."""

    def wait(self, cluster: str, timeout: float) -> Deferred[Tunnel]:
        """Wait for one, *timeout* s at most; errback `ClusterUnreachable`."""


class Upstream:
    """One pooled channel."""

    def __init__(self, channel: Pipe, tunnel: Tunnel) -> None:
        self.channel = channel
        self.tunnel = tunnel
        self.reused = False


class ChannelPool:
    """The unused channels of every cluster.  A ``TimerService(5.0, pool.sweep)`` closes old ones."""

    def __init__(self, tunnels: Tunnels, *, wait: float = WAIT, idle: float = IDLE, kept: int = KEPT) -> None:
        self._tunnels = tunnels
        self._wait = wait

    def take(self, relay: Relay) -> Upstream | None:
        """Return an unused channel for *relay*, or None: then `open` one."""
        return None

    def open(self, relay: Relay) -> Deferred[Upstream]:
        """Open a channel, waiting for a reconnecting agent; errback `ClusterUnreachable` or `Refusal`."""
        return fail(ClusterUnreachable(relay.cluster))

    def give(self, relay: Relay, upstream: Upstream) -> None:
        """Keep *upstream* for the next request."""

    def sweep(self) -> None:
        """Close what has been unused for too long; to be called every five seconds."""

    def stop(self) -> None:
        """Close all unused channels."""
