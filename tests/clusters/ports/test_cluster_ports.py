"""Tests of `tower.clusters.ports.cluster_ports`; more are in `tests.clusters.test_clusters`."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.store import MemoryStore


class ClusterPortsTests(SynchronousTestCase):
    """Each test has one port without a quarantine."""

    def setUp(self) -> None:
        """Make a store without clusters."""
        self.store = MemoryStore()
        self.clusters = self.with_ports(range(6000, 6001))

    def with_ports(self, ports: range | None) -> Clusters:
        """Return the clusters as another start of the proxy sees them."""
        clusters = Clusters(self.store, ports, Clock())
        self.addCleanup(clusters.stop)
        return clusters

    def test_listening(self) -> None:
        """The port is open while the cluster is enabled and there are ports at all."""
        alpha = self.successResultOf(self.clusters.add("alpha"))
        self.assertEqual(self.clusters.ports.listening(alpha), 6000)
        self.assertIsNone(self.clusters.ports.listening(evolve(alpha, enabled=False)))
        self.assertIsNone(self.with_ports(None).ports.listening(alpha))

    def test_no_quarantine(self) -> None:
        """Without a quarantine a released port is free at once."""
        self.successResultOf(self.clusters.add("a"))
        self.successResultOf(self.clusters.remove("a"))
        self.assertEqual(self.successResultOf(self.clusters.add("b")).kubernetes_port, 6000)
