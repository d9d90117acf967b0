"""Tests of `tower.controller.leader.lease_events` and `election_metrics`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.election_metrics import CHANGES, STATUS, ElectionCollector
from tower.controller.leader.leader_election import ElectionTimes, LeaderElection
from tower.controller.leader.lease_events import LeaseEvents
from tower.kube.rest.well_known import EVENTS, LEASES
from tower.metrics.page import registry_of

NAMESPACE = "kubesphere-system"
NOW = 1_790_000_000.0


class LeaseEventsTests(SynchronousTestCase):
    """A candidate that leads."""

    def setUp(self) -> None:
        """Start it."""
        self.clock, self.host = Clock(), FakeHost()
        self.election = LeaderElection(
            self.host, self.clock, "a", NAMESPACE, ElectionTimes(), epoch=lambda: NOW + self.clock.seconds()
        )
        self.election.startService()
        self.addCleanup(self.election.stopService)
        self.events = LeaseEvents(self.host, self.election.lock, lambda: NOW + self.clock.seconds())

    def test_event(self) -> None:
        """An event has client-go's reason and text, and refers to the Lease."""
        self.events.record("became leader")
        lease = self.host.object(LEASES, "tower", NAMESPACE)
        assert lease is not None
        (event,) = self.host.objects(EVENTS, NAMESPACE)
        self.assertEqual(
            [event[key] for key in ("reason", "message", "type")],
            ["LeaderElection", "a became leader", "Normal"],
        )
        metadata = lease["metadata"]
        self.assertEqual(
            event["involvedObject"],
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "name": "tower",
                "namespace": NAMESPACE,
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
        )
        self.clock.advance(1)
        self.events.record("stopped leading")
        self.assertEqual(len(self.host.objects(EVENTS, NAMESPACE)), 2)

    def test_failure(self) -> None:
        """A rejected event, and an API server that does not answer, are ignored."""
        self.host.fail_next(403, verbs=["create"], plural="events")
        self.events.record("became leader")
        self.host.freeze()
        self.events.record("became leader")
        self.events.record("stopped leading")
        self.events.stop()
        self.host.thaw()
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_metrics(self) -> None:
        """A leader and a standby differ in the status; both count the changes of the leader."""
        standby = LeaderElection(
            self.host, self.clock, "b", NAMESPACE, ElectionTimes(), epoch=self.clock.seconds
        )
        standby.startService()
        self.addCleanup(standby.stopService)
        lease = self.host.object(LEASES, "tower", NAMESPACE)
        assert lease is not None
        self.host.put(LEASES, {**lease, "spec": {**lease["spec"], "leaseTransitions": 3}})
        self.clock.pump([0.5] * 20)
        found = []
        for election in (self.election, standby):
            registry = registry_of(ElectionCollector(election))
            status = registry.get_sample_value(STATUS, {"name": "tower"})
            found.append((status, registry.get_sample_value(CHANGES)))
        self.assertEqual(found, [(1.0, 3.0), (0.0, 3.0)])
