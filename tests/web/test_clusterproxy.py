"""Tests of the clusters' own ports."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tower.clusters import Clusters
from tower.store import MemoryStore
from tower.web.clusterproxy import PORT_OPEN, ClusterProxies, ClusterProxy, KubernetesDoors


class FakeGateway:
    """A gateway that only remembers."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.swept = 0
        self.stopped: list[float] = []

    def accept(self, connection: object) -> None:
        """Take nothing."""

    def sweep(self) -> None:
        """Count."""
        self.swept += 1

    def stop(self, grace: float) -> Deferred[None]:
        """Remember with how much grace."""
        self.stopped.append(grace)
        return succeed(None)


class TakenPorts(MemoryReactorClock):
    """A reactor on which some ports are taken.

    :ivar taken: those.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken: set[int] = set()

    def listenTCP(self, port: int, *arguments: Any, **named: Any) -> Any:
        """Refuse the taken ones."""
        if port in self.taken:
            raise CannotListenError("", port, OSError(98, "Address already in use"))
        return super().listenTCP(port, *arguments, **named)


class ClusterProxiesTests(SynchronousTestCase):
    """Ports follow the clusters."""

    def setUp(self) -> None:
        """Start with alpha, on port 6000."""
        self.reactor = TakenPorts()
        self.clusters = Clusters(MemoryStore(), range(6000, 6003), self.reactor)
        self.gateways: dict[str, FakeGateway] = {}
        doors = KubernetesDoors(self.reactor, self.clusters, "127.0.0.1", self.gateway)
        self.service = ClusterProxies(self.clusters, doors)
        self.successResultOf(self.clusters.add("alpha"))

    def gateway(self, cluster: str) -> Any:
        """Make a gateway and remember it."""
        self.gateways[cluster] = FakeGateway(cluster)
        return self.gateways[cluster]

    def start(self) -> None:
        """Start, and stop when the test is over."""
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def ports(self) -> list[tuple[int, str]]:
        """Return the ports that were opened, and on which address."""
        return [(server[0], server[3]) for server in self.reactor.tcpServers]

    def open_now(self) -> list[int]:
        """Return the ports that the service has open."""
        return [service.door.number for service in self.service if isinstance(service, ClusterProxy)]

    def condition(self, name: str) -> tuple[str, str]:
        """Return status and reason of the condition about the port."""
        found = self.clusters.require(name).condition(PORT_OPEN)
        assert found is not None
        return found.status, found.reason

    def test_there_at_the_start(self) -> None:
        """A cluster that is there when the service starts gets its port, on the host alone."""
        self.start()
        self.assertEqual(self.ports(), [(6000, "127.0.0.1")])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))

    def test_added(self) -> None:
        """So does one that comes later; each has a gateway of its own."""
        self.start()
        self.successResultOf(self.clusters.add("beta"))
        self.assertEqual(self.open_now(), [6000, 6001])
        self.service.sweep()
        self.assertEqual([g.swept for g in self.gateways.values()], [1, 1])

    def test_changed(self) -> None:
        """A change that has nothing to do with the port leaves it alone."""
        self.start()
        self.successResultOf(self.clusters.set_condition("alpha", "AgentAvailable", "True", "R", "m"))
        self.service.retry()
        self.assertEqual(len(self.ports()), 1)

    def test_disabled_and_enabled(self) -> None:
        """Disabling closes the port and its connections at once; enabling opens the same one again."""
        self.start()
        gateway = self.gateways["alpha"]
        self.successResultOf(self.clusters.set_enabled("alpha", False))
        self.assertEqual((self.open_now(), gateway.stopped), ([], [0]))
        self.successResultOf(self.clusters.set_enabled("alpha", True))
        self.assertEqual(self.open_now(), [6000])
        self.assertIsNot(self.gateways["alpha"], gateway)

    def test_removed(self) -> None:
        """Removing closes it too."""
        self.start()
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(self.open_now(), [])

    def test_taken(self) -> None:
        """A taken port is in the log and in the condition, harms no other, and is tried again."""
        self.reactor.taken.add(6000)
        self.start()
        self.successResultOf(self.clusters.add("beta"))
        self.assertEqual(self.open_now(), [6001])
        self.assertEqual(self.condition("alpha"), ("False", "PortUnavailable"))
        self.reactor.taken.clear()
        self.service.retry()
        self.assertEqual(sorted(self.open_now()), [6000, 6001])
        self.assertEqual(self.condition("alpha"), ("True", "PortOpen"))

    def test_stopped(self) -> None:
        """A stopped service has closed everything and follows nothing any more."""
        self.service.startService()
        self.service.stopService()
        self.assertEqual(self.gateways["alpha"].stopped, [0])
        self.successResultOf(self.clusters.add("beta"))
        self.assertEqual(len(self.ports()), 1)
