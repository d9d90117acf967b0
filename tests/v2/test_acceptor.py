"""Tests of where agents come in, with real SSH on both ends of a pipe in memory."""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.tunnel_pairs import MemoryPipe, carry_all
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.limits import TooManyConnections
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.kube.member_report import read_report, write_report
from tower.kube.member_status import Check, MemberStatus
from tower.logs.formats import json_line
from tower.net.budget import Budget
from tower.net.connection_slots import Slots
from tower.tunnels.limits import ANSWER_TIMEOUT, TunnelSlots
from tower.v2.acceptor import AgentAcceptor
from tower.v2.hello import CHECK_MEMBER, AgentHello
from tower.v2.peers import AgentRefused
from tower.v2.transport import STATUS_REPORT, ClientTransport
from tower.websocket.frames import FrameReader, FrameWriter

#: The hello of an agent that checks its API server on request.
HELLO = AgentHello(version="9.9", capabilities=(CHECK_MEMBER,))


class Agent:
    """An agent's end.

    :ivar failed: why it was rejected.
    :ivar lost: why its tunnel ended.
    """

    def __init__(
        self, clock: Clock, host_key: KeyPair, key: KeyPair, token: str | None, cluster: str = "alpha"
    ) -> None:
        self.pipe = MemoryPipe()
        self.ssh = ssh = ClientTransport(clock, key, cluster, [host_key.fingerprint], HELLO, token=token)
        self.tunnel = SSHTunnel(
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


class AcceptorTests(SynchronousTestCase):
    """Accepts or rejects agents, and registers their tunnels."""

    def setUp(self) -> None:
        """Start with one cluster and a acceptor for it."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.host_key, self.key = KeyPair.generate(), KeyPair.generate()
        self.cluster = "alpha"
        self.acceptor = AgentAcceptor(
            self.bench.clock,
            self.bench.tunnels,
            self.bench.tokens,
            [self.host_key],
            Budget(1 << 20),
            keepalive=10.0,
            epoch=self.bench.clock.seconds,
        )
        self.acceptor.startService()
        self.slots = Slots(self.bench.clock)

    def connect(self, token: str | None) -> tuple[Agent, Deferred[None]]:
        """Connect an agent; return it and the result of `AgentAcceptor.opened`."""
        agent = Agent(self.bench.clock, self.host_key, self.key, token, self.cluster)
        near = MemoryPipe()
        near.slot = self.slots.take(None)  # type: ignore[attr-defined]
        near.other, agent.pipe.other = agent.pipe, near
        self.pipes = (near, agent.pipe)
        settled = self.acceptor.opened(near, b"")
        agent.tunnel.start()
        self.pump()
        return agent, settled

    def pump(self) -> None:
        """Carry bytes and run what is due until nothing moves."""
        carry_all(self.bench.clock, *self.pipes)

    def limit(self, per_key: int) -> str:
        """Allow so many tunnels to a key, have it open them, and return the token that it did so with."""
        self.acceptor.slots = TunnelSlots(self.bench.clock, per_key=per_key)
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        self.alive = []
        for _ in range(per_key):
            self.connect(token)
            self.alive.append(self.pipes)
        self.assertEqual(len(self.bench.tunnels.live("alpha")), per_key)
        return token

    def judge(self) -> None:
        """Let live agents answer, and the time for it pass."""
        for pipes in [*self.alive, self.pipes]:
            carry_all(self.bench.clock, *pipes)
        self.bench.clock.advance(ANSWER_TIMEOUT)
        for pipes in [*self.alive, self.pipes]:
            carry_all(self.bench.clock, *pipes)

    def test_one_too_many(self) -> None:
        """An agent whose key has all its tunnels gets a specific reason before it is accepted."""
        for offered in (True, False):
            self.key = KeyPair.generate()
            token = self.limit(2)
            agent, settled = self.connect(token if offered else None)
            self.assertNoResult(settled)
            self.judge()
            self.successResultOf(settled)
            self.assertIsInstance(agent.failed, TooManyConnections)
            self.assertIn("has 2 tunnels into cluster alpha", str(agent.failed))
            self.assertIn("--max-tunnels-per-key", str(agent.failed))
            self.assertEqual(len(self.bench.tunnels.live("alpha")), 2)
            self.alive.pop()[0].lose()
            agent, settled = self.connect(None)
            self.successResultOf(settled)
            self.assertIs(agent.failed, None)
            for pipes in [*self.alive, self.pipes]:
                pipes[0].lose()

    def test_replaced(self) -> None:
        """An agent that reconnects replaces its dead tunnel, which was not detected yet."""
        self.limit(2)
        self.alive.pop(0)  # nothing is carried any more
        before = self.bench.tunnels.live("alpha")
        agent, settled = self.connect(None)
        self.assertNoResult(settled)
        self.judge()
        self.successResultOf(settled)
        self.assertIs(agent.failed, None)
        self.bench.clock.advance(5)  # the dead tunnel's bytes are lost
        live = self.bench.tunnels.live("alpha")
        self.assertEqual(len(live), 2)
        self.assertEqual([tunnel in live for tunnel in before], [False, True])

    def test_counted_before_the_hello(self) -> None:
        """An authenticated agent without a hello has a slot; it is free after it disconnects."""
        self.acceptor.slots = TunnelSlots(self.bench.clock, per_cluster=1)
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        self.patch(ClientTransport, "_accepted", ClientTransport.start_connection)
        self.connect(token)
        silent = self.pipes
        self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.key = KeyPair.generate()
        other = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(other)
        self.assertIsInstance(agent.failed, TooManyConnections)
        self.assertIn("--max-tunnels-per-cluster", str(agent.failed))
        silent[1].lose()
        self.pipes = silent
        self.pump()
        agent, _ = self.connect(None)
        self.assertIs(agent.failed, None)

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

    def test_member_status(self) -> None:
        """A tunnel keeps the agent's last report, and announces each change; before, it has none."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        (tunnel,) = self.bench.tunnels.live("alpha")
        self.assertIsNone(tunnel.member_status)
        changes: list[str] = []
        self.bench.tunnels.watch(changes.append)
        good = MemberStatus(Check("True", "Reachable", "it answers"), version="v1.36.2")
        for status in (good, good, MemberStatus(), good):
            agent.ssh.report(status)
            self.pump()
            self.assertEqual(tunnel.member_status, read_report(write_report(status), "the agent of alpha"))
        self.assertEqual(changes, ["alpha"] * 3)

    def test_doubt(self) -> None:
        """An outcome that contradicts the agent's report makes it check, if it can do so."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        (tunnel,) = self.bench.tunnels.live("alpha")
        checks: list[bool] = []
        agent.ssh.on_check_request = lambda: checks.append(True)
        self.bench.tunnels.note_outcome(tunnel, reached=True)
        self.pump()
        self.assertEqual(checks, [])
        self.bench.tunnels.note_outcome(tunnel, reached=False)
        self.pump()
        self.assertEqual(checks, [True])
        self.patch(sys.modules[__name__], "HELLO", AgentHello(version="9.8"))
        old, _ = self.connect(None)
        old.ssh.on_check_request = lambda: checks.append(True)
        (tunnel,) = (each for each in self.bench.tunnels.live("alpha") if each.version == "9.8")
        self.bench.tunnels.note_outcome(tunnel, reached=False)
        self.pump()
        self.assertEqual(checks, [True])

    def test_fields(self) -> None:
        """The fields of the line for a connected agent are plain values; its text quotes the agent."""
        with capturedLogs() as events:
            self.connect(self.successResultOf(self.bench.tokens.mint("alpha")))
            self.bench.clock.advance(1.0)
        (event,) = (each for each in events if "connected from" in formatEvent(each))
        fields = json.loads(json_line(event, [formatEvent(event)]))
        self.assertEqual((fields["cluster"], fields["version"]), ("alpha", "9.9"))
        self.assertEqual(fields["key"], self.key.fingerprint)
        self.assertIn('the agent of alpha reports: "version 9.9"', fields["message"])
        self.assertNotIn("_reported", fields)

    def test_hostile_status(self) -> None:
        """An invalid report ends the tunnel."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        agent.ssh.request(STATUS_REPORT, b"{}x", want_reply=False)
        self.pump()
        self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.assertIsNotNone(agent.lost)

    def test_not_let_in(self) -> None:
        """Without a key or token that is good there is no tunnel, and the connection is free again."""
        for token in (None, "tower-wrong"):
            agent, settled = self.connect(token)
            self.successResultOf(settled)
            self.assertIsInstance(agent.failed, AgentRefused)
            self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.assertEqual((self.slots.proven, self.slots.unproven), (0, 2))

    def test_disabled_meanwhile(self) -> None:
        """An agent whose cluster was disabled is rejected."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        agent, _ = self.connect(token)
        self.assertEqual(self.bench.tunnels.live("alpha"), [])
        self.assertIsInstance(agent.failed, AgentRefused)

    def test_the_owner_of_a_key(self) -> None:
        """The owner of a key learns that its cluster is disabled, or its key revoked; the log has the key."""
        bench, counters = self.bench, self.bench.tunnels.counters
        self.connect(self.successResultOf(bench.tokens.mint("alpha")))
        self.pipes[0].lose()
        key = self.key.fingerprint
        self.successResultOf(bench.clusters.set_enabled("alpha", False))
        spare = self.successResultOf(bench.tokens.mint("alpha"))
        with capturedLogs() as events:
            agent, _ = self.connect(spare)
        self.assertIn("the cluster is disabled: run 'tower cluster enable alpha'", str(agent.failed))
        (line,) = (event for event in events if event.get("kind"))
        self.assertEqual((line["kind"], line["cluster"], line["key"]), ("disabled", "alpha", key))
        self.assertIn("for cluster 'alpha': the cluster is disabled", str(formatEvent(line)))
        self.successResultOf(bench.clusters.set_enabled("alpha", True))
        self.successResultOf(bench.tokens.revoke("alpha", key))
        agent, _ = self.connect(None)
        self.assertIn(f"its key {key} was revoked, and it has no join token", str(agent.failed))
        self.assertEqual(bench.tunnels.revoked_key("alpha"), key)
        agent, _ = self.connect("tower-wrong")
        self.assertIn(f"its key {key} was revoked, and its join token is unknown", str(agent.failed))
        found = {kind: number for kind, number in counters.rejections.items() if number}
        self.assertEqual(found, {"disabled": 1, "revoked": 2})
        self.connect(spare)
        self.assertEqual(len(bench.tunnels.live("alpha")), 1)
        self.assertEqual(bench.tunnels.revoked_key("alpha"), "")

    def test_strangers(self) -> None:
        """An unknown key gets the same bytes about any cluster: enabled, disabled or unknown."""
        seen = set()
        for name, enabled in (("beta", True), ("gamma", False), (None, True)):
            if name is not None:
                self.successResultOf(self.bench.clusters.add(name))
                self.successResultOf(self.bench.clusters.set_enabled(name, enabled))
            self.cluster = name or "delta"
            agent, _ = self.connect("tower-wrong")
            assert isinstance(agent.failed, AgentRefused)
            seen.add((str(agent.failed).replace(self.cluster, ""), agent.tunnel.bytes_in))
        self.assertEqual(len(seen), 1, seen)
        self.assertEqual(self.bench.tunnels.counters.rejections["unknown-cluster"], 1)
        self.assertEqual(self.bench.tunnels.counters.rejections["disabled"], 0)

    def test_closed_on_purpose(self) -> None:
        """A peer that closes in order before it is authenticated is not counted as a rejected agent."""
        agent = Agent(self.bench.clock, self.host_key, self.key, None)
        near = MemoryPipe()
        near.other, agent.pipe.other = agent.pipe, near
        with capturedLogs() as events:
            settled = self.acceptor.opened(near, b"")
            agent.tunnel.start()
            agent.tunnel.close("the check is finished")
            carry_all(self.bench.clock, near, agent.pipe)
        self.successResultOf(settled)
        self.assertEqual([event for event in events if event["log_level"].name != "debug"], [])
        self.assertEqual(sum(self.bench.tunnels.counters.rejections.values()), 0)

    def test_cut(self) -> None:
        """A connection that is lost before authentication is counted, and logged as what it is."""
        agent = Agent(self.bench.clock, self.host_key, self.key, None)
        near = MemoryPipe()
        near.other, agent.pipe.other = agent.pipe, near
        with capturedLogs() as events:
            self.acceptor.opened(near, b"")
            agent.tunnel.start()
            near.lose()
        self.assertIn("disconnected before it was authenticated", str(formatEvent(events[-1])))
        self.assertEqual(self.bench.tunnels.counters.rejections["connection-lost"], 1)

    def test_counted(self) -> None:
        """Rejected agents and lost tunnels are counted by reason; the bytes of a tunnel outlive it."""
        counters = self.bench.tunnels.counters
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        self.connect("tower-wrong")
        self.assertEqual(counters.rejections["invalid-token"], 1)
        agent, _ = self.connect(token)
        self.assertEqual(sum(counters.rejections.values()), 1)
        agent.tunnel.close("maintenance")
        self.pump()
        self.assertEqual(counters.of("alpha").disconnects["peer-closed"], 1)
        self.connect(None)
        self.pipes[0].lose()
        self.assertEqual(counters.of("alpha").disconnects["connection-lost"], 1)
        self.connect(None)
        self.bench.tunnels.cut("alpha", "cluster alpha is disabled")
        self.pump()
        self.assertEqual(counters.of("alpha").disconnects["closed"], 1)
        self.assertEqual(sum(counters.of("alpha").disconnects.values()), 3)

    def test_stops(self) -> None:
        """Stopping notifies the agents, and finishes when their connections are closed."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        stopped = self.acceptor.stopService()
        self.pump()
        self.successResultOf(stopped)
        self.assertIn("the proxy is stopping", str(agent.lost))

    def test_stops_without_an_answer(self) -> None:
        """A connection that does not close in time is cut."""
        token = self.successResultOf(self.bench.tokens.mint("alpha"))
        agent, _ = self.connect(token)
        agent.pipe.pause()
        stopped = self.acceptor.stopService()
        self.assertNoResult(stopped)
        self.bench.clock.advance(5)
        self.successResultOf(stopped)
        self.assertEqual(self.bench.tunnels.live("alpha"), [])

    def test_stops_alone(self) -> None:
        """Without agents a stop is over at once."""
        self.successResultOf(self.acceptor.stopService())
