"""Tests of `tower.control.last_seen`."""

from __future__ import annotations

from unittest.mock import patch

from twisted.internet.defer import Deferred, fail
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.agent_keys import AgentKeys
from tower.clusters.condition_types import AGENT_AVAILABLE
from tower.control.last_seen import RECORDS, LastSeen
from tower.kube.member_status import Check, MemberStatus
from tower.store.kinds import SETTINGS
from tower.store.records import StoreFailed
from tower.tunnels import Tunnels

STATUS = MemberStatus(Check("True", "Reachable"), version="v1.31.2")


#: The keys of alpha's agents; the first is that of the tunnel.
KEYS = ("SHA256:agent", "SHA256:other")


class LastSeenTests(SynchronousTestCase):
    """Times that survive a restart."""

    def setUp(self) -> None:
        """Two clusters; alpha is connected."""
        self.bench = Bench()
        for name in ("alpha", "beta"):
            self.successResultOf(self.bench.clusters.add(name))
        token = self.successResultOf(self.bench.tokens.mint("alpha", uses=2))
        for key in KEYS:
            self.successResultOf(self.bench.tokens.enrol("alpha", token, key, b"blob"))
        self.keys = AgentKeys(self.bench.store, self.bench.clock)
        self.service = LastSeen(self.bench.store, self.bench.clusters, self.bench.tunnels, self.keys)
        self.service.startService()
        self.tunnel = FakeTunnel("alpha", member_status=STATUS)
        self.bench.tunnels.add(self.tunnel)

    def write(self) -> None:
        """Write."""
        self.successResultOf(Deferred.fromCoroutine(self.service.write()))

    def restarted(self) -> Tunnels:
        """Return the tunnels of another run, with the times restored."""
        tunnels = Tunnels(self.bench.clock, self.bench.clock.seconds)
        self.keys = AgentKeys(self.bench.store, self.bench.clock)
        LastSeen(self.bench.store, self.bench.clusters, tunnels, self.keys).startService()
        return tunnels

    def seen(self, key: str) -> float | None:
        """Return when the agent with *key* was last seen; None: it is connected."""
        agent = self.keys.last("alpha", key)
        assert agent is not None
        self.assertEqual((agent.host, agent.address, agent.version), ("edge-1", "192.0.2.1:4711", "1.2.3"))
        return agent.seen

    def test_agents(self) -> None:
        """Each agent's host, address, version and time outlive its tunnel and the proxy."""
        other = FakeTunnel("alpha", KEYS[1])
        self.bench.tunnels.add(other)
        self.bench.clock.advance(60)
        self.bench.tunnels.remove(other)
        self.assertEqual([self.seen(key) for key in KEYS], [None, NOW + 60])
        self.bench.clock.advance(60)
        self.write()
        self.restarted()
        self.assertEqual([self.seen(key) for key in KEYS], [NOW + 120, NOW + 60])

    def test_second_tunnel(self) -> None:
        """An agent with another tunnel is connected."""
        other = FakeTunnel("alpha")
        self.bench.tunnels.add(other)
        self.bench.tunnels.remove(self.tunnel)
        self.assertIsNone(self.seen(KEYS[0]))
        self.bench.tunnels.remove(other)
        self.assertEqual(self.seen(KEYS[0]), NOW)

    def test_replicas(self) -> None:
        """One of the replicas with a key is noted while it is connected; another's return writes nothing."""
        replica = FakeTunnel("alpha", host="edge-2")
        self.bench.tunnels.add(replica)
        self.bench.clock.advance(1)
        version = self.bench.store.version
        for _ in range(3):
            self.bench.tunnels.remove(replica)
            replica = FakeTunnel("alpha", host="edge-2")
            self.bench.tunnels.add(replica)
            self.bench.clock.advance(1)
        self.assertEqual(self.bench.store.version, version)
        self.assertIsNone(self.seen(KEYS[0]))
        self.bench.tunnels.remove(self.tunnel)
        self.bench.clock.advance(1)
        agent = self.keys.last("alpha", KEYS[0])
        assert agent is not None
        self.assertEqual((agent.host, agent.seen), ("edge-2", None))

    def test_frozen_agent(self) -> None:
        """A frozen agent was last seen at its last byte."""
        self.bench.clock.advance(100)
        self.bench.tunnels.note_silence(self.tunnel, 20.0)
        self.bench.clock.advance(10)
        self.bench.tunnels.remove(self.tunnel)
        self.assertEqual(self.seen(KEYS[0]), NOW + 80)

    def test_orderly_stop(self) -> None:
        """After a stop the next run has the times and versions."""
        self.bench.clock.advance(60)
        self.successResultOf(self.service.stopService())
        self.bench.clock.advance(3600)
        tunnels = self.restarted()
        self.assertEqual(tunnels.last_seen("alpha"), NOW + 60)
        self.assertEqual(tunnels.kubernetes_version("alpha"), "v1.31.2")
        self.assertIsNone(tunnels.last_seen("beta"))

    def test_crash(self) -> None:
        """After a crash the next run has the times of the last write."""
        self.write()
        self.bench.clock.advance(200)
        self.assertEqual(self.restarted().last_seen("alpha"), NOW)

    def test_few_writes(self) -> None:
        """All clusters share few records, and times that did not change are not written."""
        for number in range(100):
            self.successResultOf(self.bench.clusters.add(f"c{number}"))
            self.bench.tunnels.add(FakeTunnel(f"c{number}"))
        version = self.bench.store.version
        self.write()
        self.assertLessEqual(self.bench.store.version - version, RECORDS)
        version = self.bench.store.version
        self.write()
        self.assertEqual(self.bench.store.version, version)

    def test_removed(self) -> None:
        """A removed cluster leaves nothing behind after the next write, and its successor is another one."""
        self.write()
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.bench.tunnels.remove(self.tunnel)
        self.bench.tunnels.forget("alpha")
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.write()
        self.assertIsNone(self.restarted().last_seen("alpha"))
        records = self.bench.store.snapshot(SETTINGS).values()
        self.assertEqual([record.value["clusters"] for record in records], [{}])

    def test_before_the_first_write(self) -> None:
        """Without a record, an available cluster was last seen when it became available."""
        for name, status in (("alpha", "True"), ("beta", "False")):
            self.successResultOf(
                self.bench.clusters.set_condition(name, AGENT_AVAILABLE, status, "R", "m")  # type: ignore[arg-type]
            )
        self.bench.clock.advance(100)
        tunnels = self.restarted()
        self.assertEqual((tunnels.last_seen("alpha"), tunnels.last_seen("beta")), (NOW, None))

    def test_store_fails(self) -> None:
        """A failed write is logged in one line; one after the store's stop is not."""
        failing = patch.object(self.bench.store, "transact", lambda _: fail(StoreFailed("no space left")))
        with failing, capturedLogs() as events:
            self.write()
        self.assertEqual([event["reason"] for event in events], ["no space left"])
        self.successResultOf(self.bench.store.stop())
        with capturedLogs() as events:
            self.write()
        self.assertEqual(events, [])
