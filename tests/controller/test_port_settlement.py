"""Tests of `tower.controller.port_settlement`; more are in `tests.controller.test_controller`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.kube.rest.fake_host import FakeHost
from tower.clusters.ports.port_assignment import PortAssignment
from tower.controller.host_events import HostEvents
from tower.controller.objects.host_cluster import HostCluster
from tower.controller.port_settlement import PortSettlement, RecordPending


def _cluster(port: int | None) -> HostCluster:
    connection = {"type": "proxy", "kubernetesAPIServerPort": port}
    metadata = {"name": "alpha", "uid": "u", "resourceVersion": "7"}
    return HostCluster.of({"metadata": metadata, "spec": {"connection": connection}})


class PortSettlementTests(SynchronousTestCase):
    """Each test has a cluster whose record has the port 6000."""

    def test_record_that_follows_late(self) -> None:
        """A port that users just wrote to the object is not overwritten by that in the record."""
        bench, host = Bench(range(6000, 6010)), FakeHost()
        record = self.successResultOf(bench.clusters.add("alpha"))
        assignment = PortAssignment(bench.store, bench.clusters)
        ports = PortSettlement(bench.clusters, assignment, HostEvents(host, bench.clock.seconds))
        for port in (6005, None):
            settling = Deferred.fromCoroutine(ports.settle(_cluster(port)))
            self.failureResultOf(settling, RecordPending)
        self.assertEqual(bench.clusters.require("alpha"), record)
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(ports.settle(_cluster(6000)))), record)
        self.assertEqual(host.writes, [])
