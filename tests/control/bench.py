"""Records and tunnels in memory, for followers of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tower.clusters import Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.store import MemoryStore
from tower.tunnels import Tunnels
from tower.web.access.authentication import Authenticator
from tower.web.access.sessions import Sessions

NOW = 1_800_000_000.0


class FakeTunnel:
    """A tunnel that only remembers why it was closed."""

    protocol = "tower-v2"

    def __init__(self, name: str, fingerprint: str = "SHA256:a") -> None:
        self.name, self.fingerprint = name, fingerprint
        self.version = self.peer = ""
        self.server = b""
        self.since = NOW
        self.draining = False
        self.on_change: Callable[[], None] = lambda: None
        self.round_trip = 0.0
        self.streams = 0
        self.closed: list[str] = []

    def rewrite_for(self, target: str) -> None:
        """Rewrite nothing."""

    def open(self, target: str) -> Deferred[Any]:
        """Open nothing."""
        return Deferred()

    def drain(self) -> None:
        """Note nothing."""

    def close(self, reason: str) -> None:
        """Remember why."""
        self.closed.append(reason)


class Bench:
    """A clock set to a real time, a store in memory, and what stands on them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = MemoryStore()
        self.clusters = Clusters(self.store, None, self.clock)
        self.credentials = Credentials(self.store, self.clock, 86400.0)
        self.tokens = JoinTokens(self.store, self.clock)
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        self.sessions = Sessions(Authenticator(self.credentials, self.clock))
