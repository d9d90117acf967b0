"""Tests of `tower.control.last_seen`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.condition_types import AGENT_AVAILABLE
from tower.control.last_seen import RECORDS, LastSeen
from tower.kube.member_status import Check, MemberStatus
from tower.store.kinds import SETTINGS
from tower.tunnels import Tunnels

STATUS = MemberStatus(Check("True", "Reachable"), version="v1.31.2")


class LastSeenTests(SynchronousTestCase):
    """Times that survive a restart."""

    def setUp(self) -> None:
        """Two clusters; alpha is connected."""
        self.bench = Bench()
        for name in ("alpha", "beta"):
            self.successResultOf(self.bench.clusters.add(name))
        self.service = LastSeen(self.bench.store, self.bench.clusters, self.bench.tunnels)
        self.service.startService()
        self.tunnel = FakeTunnel("alpha", member_status=STATUS)
        self.bench.tunnels.add(self.tunnel)

    def write(self) -> None:
        """Write."""
        self.successResultOf(Deferred.fromCoroutine(self.service.write()))

    def restarted(self) -> Tunnels:
        """Return the tunnels of another run, with the times restored."""
        tunnels = Tunnels(self.bench.clock, self.bench.clock.seconds)
        LastSeen(self.bench.store, self.bench.clusters, tunnels).startService()
        return tunnels

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
        """A failed write is logged in one line."""
        self.successResultOf(self.bench.store.stop())
        with capturedLogs() as events:
            self.write()
        self.assertEqual([event["reason"] for event in events], ["the store has stopped"])
