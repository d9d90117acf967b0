"""Bugs of what kube-apiserver makes of its tunneler, by their numbers in the list of quirks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.kubelets import CA, OTHER, KubeletPipe
from tests.fakes.tunnelers import TunnelerCase
from tower.metrics.page import MetricsPage, registry_of
from tower.metrics.port import MetricsPort
from tower.nodes.dialer import NodeDialerOptions, create_node_dialer
from tower.nodes.node_sources import ListingFailed
from tower.nodes.tunnel_metrics import Reading, TunnelCollector
from tower.reactor.interfaces import ISocketReactor

PEER = IPv4Address("TCP", "127.0.0.1", 50000)


class MetricsTests(TunnelerCase):
    """Upstream made its gauge and never registered it."""

    def scrape(self) -> list[str]:
        """Return the lines of the page that a client receives."""
        reactor = MemoryReactorClock()
        registry = registry_of(TunnelCollector(lambda: [("beta", Reading.of(self.tunneler))]))
        metrics = MetricsPage(reactor, registry, reactor.seconds)
        port = MetricsPort(reactor, metrics, "127.0.0.1", 21899)
        port.startService()
        protocol: Any = reactor.tcpServers[0][1].buildProtocol(PEER)
        transport = StringTransport(peerAddress=PEER)
        protocol.makeConnection(transport)
        protocol.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, page = transport.value().partition(b"\r\n\r\n")
        self.assertIn(b" 200 ", head)
        port.stopService()
        lines: list[str] = page.decode().splitlines()
        return lines

    def test_quirk_9_the_gauges_are_exported(self) -> None:
        """The lag of the listing is on the page under both of its names, as it is at each scrape."""
        self.run_up()
        self.pass_time(30)
        self.nodes = ListingFailed("no list")
        lags = []
        for seconds in (0, 7, 60):
            self.pass_time(seconds)
            lag = float(self.tunneler.seconds_since_sync())
            lags.append(lag)
            page = self.scrape()
            for name in (
                "apiserver_proxy_tunnel_sync_duration_seconds",
                "apiserver_proxy_tunnel_sync_latency_secs",
            ):
                self.assertIn(f'{name}{{cluster="beta"}} {lag!r}', page)
            self.assertIn('ssh_tunnel_open_count{cluster="beta"} 2.0', page)
            self.assertIn('ssh_tunnel_open_fail_count{cluster="beta"} 0.0', page)
            self.assertIn('tower_node_tunnels{cluster="beta",state="open"} 2.0', page)
        self.assertEqual([later - lags[0] for later in lags], [0, 7, 67])


class TLSTests(SynchronousTestCase):
    """Upstream verifies no certificate of servers that it reaches through nodes."""

    def connects(self, of: Any, **options: Any) -> bool:
        """Return whether a server with a certificate of *of* gets an https request."""
        pipe = KubeletPipe(of, "10.1.2.3")

        def reach(reactor: Any, host: str, port: int, *, timeout: float) -> Deferred[Any]:
            return succeed(pipe)

        _, agent = create_node_dialer(
            NodeDialerOptions(**options), cast(ISocketReactor, Clock()), reach=reach
        )
        asking = agent.request(b"GET", b"https://10.1.2.3:10250/pods")
        pipe.serve()
        if pipe.got:
            asking.cancel()
            self.failureResultOf(asking)
            return True
        self.failureResultOf(asking, ConnectError)
        return False

    def test_quirk_11_tls_is_verified(self) -> None:
        """Servers are verified with the system's CAs or a file's, unless a flag turns this off."""
        file = Path(self.mktemp())
        file.write_bytes(CA.pem)
        self.assertTrue(self.connects(CA, kubelet_authority=str(file)))
        self.assertFalse(self.connects(OTHER, kubelet_authority=str(file)))
        self.assertFalse(self.connects(CA))
        self.assertTrue(self.connects(OTHER, insecure_skip_tls_verify=True))
