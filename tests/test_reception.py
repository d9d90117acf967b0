"""Tests of where agents come in, with real SSH on both ends of a pipe in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.conch.tunnels import MemoryPipe, carry_all
from tests.test_control import Bench
from tower.budget import Budget
from tower.conch.hello import AgentHello
from tower.conch.keys import KeyPair
from tower.conch.transport import AgentRefused, ClientTransport
from tower.conch.tunnel import Tunnel
from tower.reception import Reception
from tower.slots import Slots
from tower.web.frames import FrameReader, FrameWriter


class Agent:
    """An agent's end.

    :ivar failed: why it was not let in.
    :ivar lost: why its tunnel ended.
    """

    def __init__(self, clock: Clock, host_key: KeyPair, key: KeyPair, token: str | None) -> None:
        self.pipe = MemoryPipe()
        ssh = ClientTransport(
            clock, key, "alpha", [host_key.fingerprint], AgentHello(version="9.9"), token=token
        )
        self.tunnel = Tunnel(
            clock, self.pipe, ssh, FrameReader(from_client=False), FrameWriter(to_server=True)
        )
        self.failed: Exception | None = None
        self.lost: Exception | None = None
        ssh.ready.addCallbacks(self._open_up, self._not_let_in)
        self.tunnel.lost.addCallback(self._gone)

    def _open_up(self, peer: Any) -> None:
        self.tunnel.open_up("alpha", peer.fingerprint, peer.hello.version, 0.0, Budget(1 << 20))

    def _not_let_in(self, failure: Any) -> None:
        self.failed = failure.value

    def _gone(self, reason: Exception) -> None:
        self.lost = reason


class ReceptionTests(SynchronousTestCase):
    """Who is let in, and what becomes of it."""

    def setUp(self) -> None:
        """Start with one cluster and a reception for it."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.host_key, self.key = KeyPair.generate(), KeyPair.generate()
        self.reception = Reception(
            self.bench.clock,
            self.bench.tunnels,
            self.bench.tokens,
            [self.host_key],
            Budget(1 << 20),
            keepalive=10.0,
            epoch=self.bench.clock.seconds,
        )
        self.reception.startService()
        self.slots = Slots(self.bench.clock)

    def connect(self, token: str | None) -> tuple[Agent, Deferred[None]]:
        """Have an agent connect; return it and what `Reception.opened` returned."""
        agent = Agent(self.bench.clock, self.host_key, self.key, token)
        near = MemoryPipe()
        near.slot = self.slots.take(None)  # type: ignore[attr-defined]
        near.other, agent.pipe.other = agent.pipe, near
        self.pipes = (near, agent.pipe)
        settled = self.reception.opened(near, b"")
        agent.tunnel.start()
        self.pump()
        return agent, settled

    def pump(self) -> None:
        """Carry bytes and run what is due until nothing moves."""
        carry_all(self.bench.clock, *self.pipes)

    def test_token(self) -> None:
        """A good token lets an agent in; its key does from then on, without one."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        for proven, offered in enumerate((token, None), 1):
            _, settled = self.connect(offered)
            self.assertIs(self.successResultOf(settled), None)
            self.assertEqual((self.slots.proven, self.slots.unproven), (proven, 0))
            (tunnel,) = self.bench.tunnels.live("alpha")
            self.assertEqual(
                (tunnel.fingerprint, tunnel.version, tunnel.peer, tunnel.since),
                (self.key.fingerprint, "9.9", "192.0.2.1:4321", self.bench.clock.seconds()),
            )
            self.pipes[0].lose()
            self.assertEqual(self.bench.tunnels.live("alpha"), [])

    def test_not_let_in(self) -> None:
        """Without a key or token that is good there is no tunnel, and the connection is free again."""
        for token in (None, "tower-wrong"):
            agent, settled = self.connect(token)
            self.successResultOf(settled)
            self.assertIsInstance(agent.failed, AgentRefused)
            self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.assertEqual((self.slots.proven, self.slots.unproven), (0, 2))

    def test_disabled_meanwhile(self) -> None:
        """An agent whose cluster is disabled is turned away."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        agent, _ = self.connect(token)
        self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.assertIsInstance(agent.failed, AgentRefused)

    def test_stops(self) -> None:
        """Stopping tells the agents, and is over when their connections are closed."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        stopped = self.reception.stopService()
        self.pump()
        self.successResultOf(stopped)
        self.assertIn("the proxy is stopping", str(agent.lost))

    def test_stops_without_an_answer(self) -> None:
        """A connection that does not close in time is cut."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        agent.pipe.pause()
        stopped = self.reception.stopService()
        self.assertNoResult(stopped)
        self.bench.clock.advance(5)
        self.successResultOf(stopped)
        self.assertEqual(self.bench.tunnels.live("alpha"), [])

    def test_stops_alone(self) -> None:
        """Without agents a stop is over at once."""
        self.successResultOf(self.reception.stopService())
