"""Tests of where old agents come in, with real SSH on both ends of a pipe in memory."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.control.bench import Bench
from tests.fakes.tunnel_pairs import MemoryPipe, carry_all
from tests.fakes.v1_pairs import GOOD, OldAgent
from tower.clusters.v1_tokens import V1Tokens
from tower.conch.connection.global_requests import RequestRefused, Unanswered
from tower.conch.connection.mux import Mux
from tower.conch.transport.keys import KeyPair
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.net.budget import Budget
from tower.net.pipes import NO_RECEIVER
from tower.tunnels.limits import TunnelSlots
from tower.v1.acceptor import V1AgentAcceptor
from tower.v1.config import CONFIG, AgentConfig
from tower.v1.tunnel import V1Tunnel
from tower.v2.acceptor import AgentAcceptor
from tower.websocket.frames import FrameReader, FrameWriter


class Agent(OldAgent):
    """An old agent that sends its config after authentication.

    :ivar answer: the proxy's reply.
    :ivar gone: fires with why its connection ended.
    """

    gone: Deferred[Exception]

    def __init__(self, clock: Any, config: AgentConfig) -> None:
        super().__init__(clock)
        self._config = config
        self.answer: Deferred[bytes] = Deferred()

    def start_connection(self) -> None:
        """Send the config."""
        super().start_connection()
        self.request(CONFIG, self._config.encode()).chainDeferred(self.answer)


class V1AcceptorTests(SynchronousTestCase):
    """Accepts or rejects old agents, and registers their tunnels."""

    def setUp(self) -> None:
        """Start with one cluster, a token for it, and a acceptor."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.tokens = V1Tokens(self.bench.store, self.bench.clock)
        self.token = self.successResultOf(self.tokens.mint("alpha"))
        clock, host_key = self.bench.clock, KeyPair.generate()
        self.acceptor = AgentAcceptor(
            clock,
            self.bench.tunnels,
            self.bench.tokens,
            [host_key],
            Budget(1 << 20),
            keepalive=10.0,
            epoch=clock.seconds,
        )
        self.old = V1AgentAcceptor(
            clock, self.acceptor, self.tokens, [host_key], keepalive=10.0, epoch=clock.seconds
        )
        self.acceptor.startService()

    def connect(self, **changes: Any) -> tuple[Agent, Deferred[None]]:
        """Connect an agent; return it and the result of `V1AgentAcceptor.opened`."""
        near, far = MemoryPipe(), MemoryPipe()
        near.other, far.other = far, near
        self.pipes = (near, far)
        agent = Agent(self.bench.clock, evolve(GOOD, **{"token": self.token, **changes}))
        tunnel = SSHTunnel(
            self.bench.clock, far, agent, FrameReader(from_client=False), FrameWriter(to_server=True)
        )
        agent.gone = tunnel.lost
        settled = self.old.opened(near, b"")
        tunnel.start()
        self.pump()
        return agent, settled

    def pump(self) -> None:
        """Carry bytes and run what is due until nothing moves."""
        carry_all(self.bench.clock, *self.pipes)

    def test_good(self) -> None:
        """An agent with a good token becomes a tunnel of its cluster, until its connection ends."""
        agent, settled = self.connect()
        self.assertEqual(self.successResultOf(agent.answer), b"")
        self.successResultOf(settled)
        (tunnel,) = self.bench.tunnels.live("alpha")
        assert isinstance(tunnel, V1Tunnel)
        self.assertEqual((tunnel.protocol, tunnel.version), ("kubesphere-v1", "v0.2.1"))
        (token,) = self.tokens.tokens("alpha")
        self.assertEqual((token.id, token.connected), (tunnel.fingerprint, True))
        self.pipes[0].lose()
        self.assertEqual(self.bench.tunnels.live("alpha"), [])

    def test_not_let_in(self) -> None:
        """Wrong token, unknown cluster and disabled cluster look alike, and leave nothing behind."""
        for changes in ({"token": "x" * 40}, {"name": "beta"}, {}):
            if not changes:
                self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
            agent, settled = self.connect(**changes)
            error = self.failureResultOf(agent.answer, RequestRefused).value
            assert isinstance(error, RequestRefused)
            self.assertEqual(error.reply, b"Unauthorized agent")
            self.successResultOf(settled)
            self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.successResultOf(self.acceptor.stopService())

    def test_two_agents(self) -> None:
        """Two agents of one cluster serve it together, each with its own credential."""
        self.connect(bearer=b"first")
        self.connect(bearer=b"second")
        first, second = self.bench.tunnels.live("alpha")
        assert isinstance(first, V1Tunnel)
        assert isinstance(second, V1Tunnel)
        for tunnel, credential in ((first, b"first"), (second, b"second")):
            rewrite = tunnel.rewrite_for("kubernetes")
            assert rewrite is not None
            self.assertIn(credential, rewrite(b"GET / HTTP/1.1\r\n\r\n", True))

    def test_one_too_many(self) -> None:
        """Agents with one token are limited only by their cluster; one more gets the reason."""
        self.acceptor.slots = TunnelSlots(self.bench.clock, per_key=1, per_cluster=2)
        for answer in (b"", b""):
            agent, _ = self.connect()
            self.assertEqual(self.successResultOf(agent.answer), answer)
        kept = self.pipes
        agent, settled = self.connect()
        error = self.failureResultOf(agent.answer, RequestRefused).value
        assert isinstance(error, RequestRefused)
        self.assertIn(b"cluster alpha has 2 tunnels", error.reply)
        self.assertIn(b"--max-tunnels-per-cluster", error.reply)
        self.successResultOf(settled)
        self.assertEqual(len(self.bench.tunnels.live("alpha")), 2)
        kept[0].lose()
        agent, _ = self.connect()
        self.assertEqual(self.successResultOf(agent.answer), b"")

    def test_no_credential(self) -> None:
        """An agent without a credential for its API server is accepted, and the log warns about it."""
        lines: list[str] = []

        @implementer(ILogObserver)
        def note(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        for bearer, count in ((b"one", 0), (b"", 1)):
            agent, _ = self.connect(bearer=bearer)
            self.assertEqual(self.successResultOf(agent.answer), b"")
            self.assertEqual(sum("sent no credential" in line for line in lines), count)

    def test_cut(self) -> None:
        """A tunnel that is cut is closed at once, with the reason in SSH's own words."""
        agent, _ = self.connect()
        self.bench.tunnels.cut("alpha", "the token was revoked", self.tokens.tokens("alpha")[0].id)
        self.pump()
        self.assertIn("the token was revoked", str(self.successResultOf(agent.gone)))

    def test_lost_early(self) -> None:
        """An agent that disconnects before its config leaves nothing behind."""
        near, far = MemoryPipe(), MemoryPipe()
        near.other, far.other = far, near
        far.receiver = NO_RECEIVER
        settled = self.old.opened(near, b"")
        near.lose()
        self.successResultOf(settled)
        self.assertEqual(self.bench.tunnels.live("alpha"), [])

    def test_no_channel_for_agents(self) -> None:
        """An agent that opens channels is refused: the proxy dials for no agent."""
        agent, _ = self.connect()
        answers: list[tuple[int, bytes]] = []

        class Recorded(Mux):
            def __init__(self) -> None:
                """It has no wire."""

            def message(self, kind: int, payload: memoryview) -> None:
                answers.append((kind, bytes(payload)))

        agent.connection.mux = Recorded()
        for kind in (b"kubesphere", b"direct-tcpip", b"session"):
            name = len(kind).to_bytes(4, "big") + kind
            agent.sendPacket(90, name + bytes(4) + b"\0\x20\0\0" + b"\0\0\x80\0" + b"127.0.0.1:22")
        self.pump()
        self.assertEqual([kind for kind, _ in answers], [92, 92, 92])
        self.assertIn(b"not-allowed", answers[0][1])

    def test_stopped(self) -> None:
        """A proxy that stops notifies old agents too."""
        agent, _ = self.connect()
        stopped = self.acceptor.stopService()
        self.pump()
        self.successResultOf(stopped)
        self.failureResultOf(agent.request(b"ping"), Unanswered)
