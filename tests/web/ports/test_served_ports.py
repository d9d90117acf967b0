"""Tests of `tower.web.ports.served_ports`."""

from __future__ import annotations

from typing import Any

from twisted.application.internet import TCPServer
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tower.web.ports.served_ports import RETRY_PERIOD, SWEEP_PERIOD, ServedPorts


class PortGateway:
    """A gateway that records calls."""

    def __init__(self) -> None:
        self.swept = self.cut = 0
        self.current: list[object] = []
        self.farewell = "this proxy is stopping"
        self.stopping: Deferred[None] | None = None

    def accept(self, connection: object) -> None:
        """Reject the connection."""

    def sweep(self) -> None:
        """Count."""
        self.swept += 1

    def stop(self, grace: float) -> Deferred[None]:
        """Return a Deferred for the end of the last request."""
        self.stopping = Deferred()
        return self.stopping


class ClustersPorts(MultiService, PortGateway):
    """Ports of clusters that record calls."""

    def __init__(self) -> None:
        MultiService.__init__(self)
        PortGateway.__init__(self)
        self.retried = 0
        self.drain = self.stop
        self.gateways = [self]

    def retry(self) -> None:
        """Count."""
        self.retried += 1


class ServedPortsTests(SynchronousTestCase):
    """The ports of a proxy without the plain one."""

    def setUp(self) -> None:
        """Make the ports; none is open yet."""
        self.reactor = MemoryReactorClock()
        listener: Any = self.reactor
        self.plain, self.front, self.clusters = PortGateway(), PortGateway(), ClustersPorts()
        own: Any = ((None, self.plain, listener), (8443, self.front, listener))
        clusters: Any = [self.clusters]
        self.ports = ServedPorts("127.0.0.1", own, clusters)

    def start(self) -> MultiService:
        """Start the services."""
        clock: Any = self.reactor
        parent = MultiService()
        for service in self.ports.services(clock):
            service.setServiceParent(parent)
        parent.startService()
        self.addCleanup(parent.stopService)
        return parent

    def test_open(self) -> None:
        """Ports with a number are opened; all are swept, and those of clusters retried."""
        parent = self.start()
        self.assertTrue(self.clusters.running)
        self.assertEqual([port for port, *_ in self.reactor.tcpServers], [8443])
        self.assertEqual(len([each for each in parent if isinstance(each, TCPServer)]), 1)
        for each in (self.plain, self.front, self.clusters):
            before = each.swept
            self.reactor.advance(SWEEP_PERIOD)
            self.assertEqual(each.swept, before + 1)
        before = self.clusters.retried
        self.reactor.advance(RETRY_PERIOD)
        self.assertEqual(self.clusters.retried, before + 1)

    def test_drain(self) -> None:
        """Draining closes the own ports, and waits for the requests of all."""
        parent = self.start()
        draining = Deferred.fromCoroutine(self.ports.drain(10.0))
        self.assertEqual([each for each in parent if isinstance(each, TCPServer)], [])
        for each in (self.plain, self.front, self.clusters):
            self.assertNoResult(draining)
            assert each.stopping is not None
            each.stopping.callback(None)
        self.successResultOf(draining)

    def test_reason(self) -> None:
        """The requests of all ports that are cut get the reason of the stop."""
        Deferred.fromCoroutine(self.ports.drain(0.0, "it lost its Lease"))
        for each in (self.plain, self.front, self.clusters):
            self.assertEqual(each.farewell, "this proxy is stopping: it lost its Lease")

    def stop(self, *cut: PortGateway) -> list[str]:
        """Drain, and cut the requests of *cut*; return the logged lines."""
        with capturedLogs() as events:
            draining = Deferred.fromCoroutine(self.ports.drain(10.0))
            for each in (self.plain, self.front, self.clusters):
                each.cut = len(each.current) if each in cut else 0
                assert each.stopping is not None
                each.stopping.callback(None)
            self.successResultOf(draining)
        return [formatEvent(event) for event in events]

    def test_log(self) -> None:
        """The log has the number of requests in progress, and of those that were cut."""
        self.assertEqual(self.stop(), [])
        self.front.current = [object()] * 2
        self.clusters.current = [object()]
        waiting = "waiting up to 10 s for requests in progress and streams: 3"
        self.assertEqual(self.stop(), [waiting, "all requests and streams have ended"])
        cut = "requests and streams that did not end within 10 s and were cut: 2 of 3"
        self.assertEqual(self.stop(self.front), [waiting, cut])

    def test_drain_after_failed_start(self) -> None:
        """Ports that were never opened need not be closed."""
        draining = Deferred.fromCoroutine(self.ports.drain(10.0))
        for each in (self.plain, self.front, self.clusters):
            assert each.stopping is not None
            each.stopping.callback(None)
        self.successResultOf(draining)
