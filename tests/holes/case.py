"""Base of the tests of holes: a Tower in memory, with one cluster and its agent."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, get, ok
from tests.fakes.pipes import FakePipe
from tests.holes.agentkit import MemoryAgent
from tests.holes.oldkit import MemoryOldAgent
from tests.holes.towerkit import MemoryTower, done, status_of


class HoleTestCase(SynchronousTestCase):
    """Each test has a proxy, a cluster alpha with the port 6000, and no connections."""

    def setUp(self) -> None:
        """Start the proxy."""
        self.tower = MemoryTower()
        self.addCleanup(self.tower.stop)
        self.alpha = self.tower.add("alpha")

    def agent(self, **options: Any) -> MemoryAgent:
        """Connect an agent of alpha."""
        agent = MemoryAgent(self.tower, token=self.tower.token("alpha"), **options).start()
        self.addCleanup(self.tower.pump)
        self.addCleanup(agent.service.stopService)
        return agent

    def through(self, agent: MemoryAgent, user: FakeUser, target: bytes, *fields: bytes) -> bytes:
        """Let the API server answer *user*'s request; return the request that it received."""
        self.tower.ask(user, get(target, *fields))
        server = agent.servers[-1]
        asked = server.taken()
        server.deliver(ok())
        self.tower.pump()
        self.assertEqual(status_of(user.taken()), 200)
        return asked

    def server(self, agent: MemoryAgent) -> FakePipe:
        """Return the API server's end of the last connection that *agent* opened."""
        return agent.servers[-1]

    def assert_nothing_left(self, before: int) -> None:
        """Assert that no connection of an agent is left, and no more timers than *before*."""
        self.tower.pump()
        self.assertEqual(self.tower.lines, [])
        self.assertEqual((self.tower.endpoint.pending, self.tower.plain.connections), (0, 0))
        self.assertEqual(len(self.tower.acceptor._open), 0)
        self.assertEqual(self.timers(), before)

    def timers(self) -> int:
        """Return the number of timers, once log lines and conditions are written, which takes some time."""
        for _ in range(11):
            self.tower.machine.advance(1.0)
        return len(self.tower.machine.getDelayedCalls())


class OldAgentTestCase(HoleTestCase):
    """Each test has a token for old agents of alpha, and jane's credential.

    :ivar token: that token.
    """

    def setUp(self) -> None:
        """Mint it."""
        super().setUp()
        self.token: str = done(self.tower.old_tokens.mint("alpha"))
        self.jane = self.tower.credential("alpha")

    def old(self, **changes: Any) -> MemoryOldAgent:
        """Connect an old agent."""
        return MemoryOldAgent(self.tower, **{"token": self.token, **changes}).start()

    def ask_alpha(self, *fields: bytes) -> bytes:
        """Request `/api` at the cluster's own port as a new user; return the answer so far."""
        return self.tower.ask(self.tower.user(6000), get(b"/api", *fields))
