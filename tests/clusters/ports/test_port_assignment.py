"""Tests of `tower.clusters.ports.port_assignment`: records that other programs write, and quarantine."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Cluster, Clusters
from tower.clusters.cluster import encode
from tower.clusters.ports.port_assignment import PortAssignment
from tower.errors import Conflict
from tower.store import MemoryStore
from tower.store.kinds import CLUSTERS, PORTS
from tower.store.records import Record

NOW = 1_790_000_000.0
MONTH = 30 * 86400.0


class PortAssignmentTests(SynchronousTestCase):
    """Each test has three ports with a quarantine."""

    def setUp(self) -> None:
        """Make a store without clusters."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = MemoryStore()
        self.clusters, self.assignment = self.with_ports(range(6000, 6003))

    def with_ports(self, ports: range | None) -> tuple[Clusters, PortAssignment]:
        """Return the clusters as another start of the proxy sees them, and what assigns their ports."""
        clusters = Clusters(self.store, ports, self.clock, quarantine=MONTH)
        self.addCleanup(clusters.stop)
        return clusters, PortAssignment(self.store, clusters)

    def written(self, name: str, port: int | None) -> Cluster:
        """Return a cluster that another program wrote, with a port that is not assigned."""
        cluster = Cluster(name, f"uid-of-{name}", 0, NOW, kubernetes_port=port)
        self.successResultOf(self.store.create(CLUSTERS, name, encode(cluster)))
        return self.clusters.require(name)

    def settled(self, name: str) -> int | None:
        """Return the port of a cluster after it was settled, and check that the cluster has no other."""
        cluster = self.successResultOf(self.assignment.settle(name))
        self.assertTrue(self.clusters.ports.owns(cluster))
        owned = [each.name for each in self.records() if each.value["cluster_uid"] == cluster.uid]
        self.assertEqual(owned, [str(cluster.kubernetes_port)])
        return cluster.kubernetes_port

    def records(self) -> list[Record]:
        """Return the records of ports."""
        return list(self.store.snapshot(PORTS).values())

    def test_given_port(self) -> None:
        """A free port in a record is assigned; before that it is not open."""
        cluster = self.written("a", 6001)
        self.assertIsNone(self.clusters.ports.listening(cluster))
        self.assertEqual(self.settled("a"), 6001)
        self.assertEqual(self.clusters.ports.listening(self.clusters.require("a")), 6001)

    def test_no_port(self) -> None:
        """A cluster without a port gets one."""
        self.written("a", None)
        self.assertEqual(self.settled("a"), 6000)

    def test_given_port_of_another(self) -> None:
        """A cluster whose port another cluster has gets a free one, and the taken one stays closed to it."""
        self.written("a", 6001)
        self.settled("a")
        second = self.written("b", 6001)
        self.assertIsNone(self.clusters.ports.listening(second))
        self.assertEqual(self.settled("b"), 6000)

    def test_given_port_outside(self) -> None:
        """A port outside the range is replaced, not opened."""
        self.assertIsNone(self.clusters.ports.listening(self.written("a", 22)))
        self.assertEqual(self.settled("a"), 6000)

    def test_changed_port(self) -> None:
        """A port that another program changed is assigned, and the old one is released."""
        self.written("a", 6000)
        self.settled("a")
        changed = evolve(self.clusters.require("a"), kubernetes_port=6002)
        self.successResultOf(self.store.update(CLUSTERS, "a", encode(changed)))
        self.assertEqual(self.settled("a"), 6002)
        self.written("b", None)
        self.assertEqual(self.settled("b"), 6001)

    def test_kept_port(self) -> None:
        """A cluster whose record another program gave a taken port, or none, keeps its own."""
        for name, port in (("a", 6001), ("b", 6002)):
            self.written(name, port)
            self.settled(name)
        for wrong in (6002, None, 22):
            changed = evolve(self.clusters.require("a"), kubernetes_port=wrong)
            self.successResultOf(self.store.update(CLUSTERS, "a", encode(changed)))
            self.assertEqual(self.settled("a"), 6001)

    def test_changed_range(self) -> None:
        """A port outside a changed range stays, until it is removed from the record."""
        self.written("a", 6001)
        self.settled("a")
        self.clusters, self.assignment = self.with_ports(range(7000, 7003))
        self.assertEqual(self.settled("a"), 6001)
        self.assertEqual(self.clusters.ports.listening(self.clusters.require("a")), 6001)
        changed = evolve(self.clusters.require("a"), kubernetes_port=None)
        self.successResultOf(self.store.update(CLUSTERS, "a", encode(changed)))
        self.assertEqual(self.settled("a"), 7000)

    def test_owner(self) -> None:
        """A port belongs to one cluster, until it is released."""
        self.assertEqual(self.clusters.ports.owner(6001), "")
        self.written("a", 6001)
        self.settled("a")
        self.assertEqual(self.clusters.ports.owner(6001), "a")
        self.successResultOf(self.assignment.release("uid-of-a"))
        self.assertEqual(self.clusters.ports.owner(6001), "")

    def test_settled_once(self) -> None:
        """A cluster with its own port is not written."""
        self.written("a", None)
        self.settled("a")
        version = self.store.version
        self.settled("a")
        self.assertEqual(self.store.version, version)

    def test_quarantine(self) -> None:
        """The port of a removed cluster is assigned to no other cluster for the time of the quarantine."""
        self.successResultOf(self.clusters.add("a"))
        self.successResultOf(self.clusters.remove("a"))
        ports = [self.successResultOf(self.clusters.add(name)).kubernetes_port for name in "bc"]
        self.assertEqual(ports, [6001, 6002])
        text = str(self.failureResultOf(self.clusters.add("d"), Conflict).value)
        self.assertIn("1 of them by clusters that were removed recently", text)
        text = str(self.failureResultOf(self.clusters.add("d", port=6000), Conflict).value)
        self.assertIn("cluster a had it recently", text)
        self.clock.advance(MONTH - 1)
        self.successResultOf(self.assignment.sweep())
        self.failureResultOf(self.clusters.add("d"), Conflict)
        self.clock.advance(1)
        self.successResultOf(self.assignment.sweep())
        self.assertEqual(self.successResultOf(self.clusters.add("d")).kubernetes_port, 6000)

    def test_same_cluster_again(self) -> None:
        """A cluster that is restored with its port gets it back during the quarantine."""
        self.successResultOf(self.clusters.add("a"))
        self.successResultOf(self.clusters.remove("a"))
        self.written("b", 6000)
        self.assertEqual(self.settled("b"), 6001)
        self.written("a", 6000)
        self.assertEqual(self.settled("a"), 6000)

    def test_removed_by_others(self) -> None:
        """The port of a cluster whose record another program removed goes into quarantine with the sweep."""
        self.written("a", None)
        self.settled("a")
        self.successResultOf(self.store.delete(CLUSTERS, "a"))
        self.successResultOf(self.assignment.sweep())
        version = self.store.version
        self.successResultOf(self.assignment.sweep())
        self.assertEqual(self.store.version, version)
        self.written("b", None)
        self.assertEqual(self.settled("b"), 6001)

    def test_released(self) -> None:
        """A cluster that is being removed can release its port before its record."""
        self.written("a", None)
        self.settled("a")
        self.successResultOf(self.assignment.release("uid-of-a"))
        self.assertIsNone(self.clusters.ports.listening(self.clusters.require("a")))

    def test_all(self) -> None:
        """Without ports no cluster has one; given some later, all get one, and keep it."""
        clusters, assignment = self.with_ports(None)
        self.assertIsNone(self.successResultOf(clusters.add("a")).kubernetes_port)
        self.successResultOf(assignment.assign_all())
        self.successResultOf(self.assignment.assign_all())
        self.assertEqual(self.clusters.require("a").kubernetes_port, 6000)
        version = self.store.version
        _, later = self.with_ports(range(7000, 7001))
        self.successResultOf(later.assign_all())
        self.assertEqual(self.store.version, version)
