"""Records and tunnels in memory, for followers of both."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock

from tests.fakes.credentials import authenticator
from tower.clusters import Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.store import IStore, MemoryStore
from tower.tunnels import Tunnels
from tower.web.access.sessions import Sessions

NOW = 1_800_000_000.0


class Bench:
    """A clock set to a real time, a store in memory, and the records in it."""

    def __init__(
        self, ports: range | None = None, opened: Callable[[Clock], IStore] = lambda clock: MemoryStore()
    ) -> None:
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = opened(self.clock)
        self.clusters = Clusters(self.store, ports, self.clock)
        self.credentials = Credentials(self.store, self.clock, 86400.0)
        self.tokens = JoinTokens(self.store, self.clock)
        self.tunnels = Tunnels(self.clock, self.clock.seconds)
        self.sessions = Sessions(authenticator(self.credentials, self.clock))
