"""Tests of `tower.member.agent_metrics` and `tower.member.stream_tally`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.muxes import MuxPair
from tests.fakes.receivers import Recorder
from tests.fakes.tunnels import FakeSSHTunnel
from tower.conch.connection.liveness import PeerDead
from tower.kube.member_status import Check, MemberStatus
from tower.member.agent_metrics import AgentCollector, agent_registry
from tower.member.policy.owner_enforcement import OwnerEnforcement
from tower.member.policy.owner_gate import OwnerGate
from tower.member.policy.owner_policy import OwnerPolicy
from tower.member.reconnecting import Backoff, Reconnecting
from tower.member.stream_tally import StreamTally
from tower.member.targets import TargetRefused
from tower.net.budget import Budget
from tower.websocket.dialer import DialFailed


class AgentCollectorTests(SynchronousTestCase):
    """Metrics of an agent with two targets."""

    def setUp(self) -> None:
        """Create the parts whose counters are read."""
        self.clock = Clock()
        self.tries: list[Deferred[Any]] = []
        self.uplink = Reconnecting(
            self.clock, self.connect, Backoff(), max_retry=0, gave_up=lambda: None, grace=1.0
        )
        self.tally = StreamTally(self.clock, ("kubernetes", "db"))
        self.status: MemberStatus | None = None
        self.registry = agent_registry(
            AgentCollector(
                uplink=self.uplink,
                tally=self.tally,
                budget=Budget(1000),
                status=lambda: self.status,
                is_disabled=lambda: self.uplink.error is not None,
                refused_heads=lambda: 4,
            )
        )

    def connect(self) -> Deferred[Any]:
        """Be the uplink."""
        self.tries.append(Deferred())
        return self.tries[-1]

    def value(self, name: str, **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(f"tower_agent_{name}", labels)

    def test_policy(self) -> None:
        """The owner's policy has its metric, if there is one."""
        self.assertIsNone(self.value("policy_current"))
        self.assertIsNone(self.value("refusals_total", reason="owner-policy"))
        gate, problems = OwnerGate("alpha", lambda: 0.0), [""]
        self.registry = agent_registry(
            AgentCollector(
                uplink=self.uplink,
                tally=self.tally,
                budget=Budget(1000),
                status=lambda: self.status,
                is_disabled=lambda: False,
                refused_heads=lambda: 0,
                owner=OwnerEnforcement(gate, (), lambda: problems[0]),
            )
        )
        self.assertRaises(TargetRefused, gate.check_target, "db")
        self.assertEqual(self.value("refusals_total", reason="owner-policy"), 1)
        self.assertEqual(self.value("policy_current"), 0)
        gate.use(OwnerPolicy())
        self.assertEqual(self.value("policy_current"), 1)
        problems[0] = "is not YAML"
        self.assertEqual(self.value("policy_current"), 0)

    def test_connection(self) -> None:
        """The state of the tunnel, and each further attempt with its reason."""
        self.uplink.startService()
        self.assertEqual(self.value("connected"), 0)
        self.assertIsNone(self.value("rtt_seconds"))
        self.tries[-1].errback(DialFailed("refused"))
        self.assertEqual(self.value("reconnects_total", reason="attempt-failed"), 1)
        self.assertEqual(self.value("cluster_disabled"), 1)
        self.clock.advance(1)
        tunnel = FakeSSHTunnel()
        self.tries[-1].callback(tunnel)
        self.assertEqual(self.value("connected"), 1)
        self.assertEqual(self.value("cluster_disabled"), 0)
        self.assertEqual(self.value("rtt_seconds"), tunnel.round_trip)
        tunnel.lost.callback(PeerDead("silent"))
        self.assertEqual(self.value("connected"), 0)
        self.assertEqual(self.value("reconnects_total", reason="timeout"), 1)
        self.clock.advance(1)
        tunnel = FakeSSHTunnel()
        self.tries[-1].callback(tunnel)
        tunnel.draining = True
        tunnel.on_change()
        self.assertEqual(self.value("reconnects_total", reason="draining"), 1)
        self.assertEqual(self.value("reconnects_total", reason="renewal"), 0)

    def test_member(self) -> None:
        """The checks of the API server have samples once their results are known."""
        names = ("apiserver_reachable", "impersonation_allowed", "credential_expiry_timestamp_seconds")
        self.assertEqual([self.value(name) for name in names], [None] * 3)
        self.status = MemberStatus()
        self.assertEqual([self.value(name) for name in names], [None] * 3)
        self.status = MemberStatus(Check("True"), Check("True"), Check("False"), credential_expires=1.9e9)
        self.assertEqual([self.value(name) for name in names], [1, 0, 1.9e9])

    def test_streams(self) -> None:
        """Streams are counted by target, their bytes by direction, as at the proxy."""
        pair = MuxPair()
        self.tally.traffic = pair.near.traffic
        channel, far = pair.open(Recorder(), Recorder())
        channel.label = "db"
        far.send(b"question")
        channel.send(b"a long answer")
        pair.pump()
        self.assertEqual(self.value("streams", target="db"), 1)
        self.assertEqual(self.value("streams", target="kubernetes"), 0)
        self.assertEqual(self.value("stream_bytes_total", direction="to_member"), 8)
        self.assertEqual(self.value("stream_bytes_total", direction="from_member"), 13)
        self.assertEqual(self.value("stream_stall_seconds_total"), 0)

    def test_dials(self) -> None:
        """Each target has its dials, also before the first one."""
        self.tally.dials["db"].times.observe(0.3)
        self.tally.dials["kubernetes"].failures["timeout"] += 1
        self.assertEqual(self.value("dial_seconds_count", target="db"), 1)
        self.assertEqual(self.value("dial_seconds_count", target="kubernetes"), 0)
        self.assertEqual(self.value("dial_failures_total", target="kubernetes", reason="timeout"), 1)
        self.assertEqual(self.value("dial_failures_total", target="db", reason="refused"), 0)

    def test_refusals(self) -> None:
        """Streams and requests that are not allowed are counted by reason."""
        self.tally.not_allowed("busy")
        self.assertEqual(self.value("refusals_total", reason="busy"), 1)
        self.tally.not_allowed("strange")
        self.assertEqual(self.value("refusals_total", reason="not-allowed"), 1)
        self.assertEqual(self.value("refusals_total", reason="request-policy"), 4)
