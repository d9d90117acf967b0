"""Tests of `tower.control.metrics_port`."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from tower.control.metrics_port import CONNECTIONS, IDLE, MetricsPort, exposition, registry_of
from tower.nodes.tunnel_metrics import Reading, TunnelCollector

SYNC_HELP = "The time since the last successful synchronization of the SSH tunnels for proxy requests."
HELP = {
    "ssh_tunnel_open_count": "Counter of ssh tunnel total open attempts",
    "ssh_tunnel_open_fail_count": "Counter of ssh tunnel failed open attempts",
    "apiserver_proxy_tunnel_sync_duration_seconds": SYNC_HELP,
    "apiserver_proxy_tunnel_sync_latency_secs": "(Deprecated) " + SYNC_HELP,
    "tower_node_tunnels": "Number of nodes by the state of their SSH tunnel.",
}
PEER = IPv4Address("TCP", "127.0.0.1", 50000)


class TunnelCollectorTests(SynchronousTestCase):
    """Metrics of node tunnels."""

    def setUp(self) -> None:
        """Make two clusters."""
        self.readings = {
            "beta": Reading(3, 1, 12, ["open", "open", "failed"]),
            "": Reading(5, 0, None),
        }
        self.registry = registry_of(TunnelCollector(lambda: self.readings))

    def value(self, name: str, cluster: str, **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(name, {"cluster": cluster, **labels})

    def test_values(self) -> None:
        """Each metric has upstream's exact name, and the cluster as a label."""
        self.assertEqual(self.value("ssh_tunnel_open_count", "beta"), 3)
        self.assertEqual(self.value("ssh_tunnel_open_fail_count", "beta"), 1)
        self.assertEqual(self.value("ssh_tunnel_open_count", ""), 5)
        self.assertEqual(self.value("apiserver_proxy_tunnel_sync_duration_seconds", "beta"), 12)
        self.assertEqual(self.value("apiserver_proxy_tunnel_sync_latency_secs", "beta"), 12)

    def test_states(self) -> None:
        """Nodes are counted by state, including states without nodes."""
        self.assertEqual(self.value("tower_node_tunnels", "beta", state="open"), 2)
        self.assertEqual(self.value("tower_node_tunnels", "beta", state="failed"), 1)
        self.assertEqual(self.value("tower_node_tunnels", "beta", state="leaving"), 0)

    def test_no_sync(self) -> None:
        """Without a list of nodes there is no lag."""
        self.assertIsNone(self.value("apiserver_proxy_tunnel_sync_duration_seconds", ""))

    def test_at_each_scrape(self) -> None:
        """The values are those at the time of the request."""
        self.readings["beta"] = Reading(4, 1, 601)
        self.assertEqual(self.value("apiserver_proxy_tunnel_sync_latency_secs", "beta"), 601)
        del self.readings["beta"]
        self.assertIsNone(self.value("ssh_tunnel_open_count", "beta"))

    def test_registries_are_apart(self) -> None:
        """Two proxies in one process have separate metrics."""
        other = registry_of(TunnelCollector(dict))
        self.assertIsNone(other.get_sample_value("ssh_tunnel_open_count", {"cluster": "beta"}))

    def test_exposition(self) -> None:
        """The text has upstream's names, types and help, which Prometheus' own parser reads back.

        It is the parser that puts ``_total`` behind each counter's name.
        """
        text = exposition(self.registry).decode()
        self.assertNotIn("_total", text)
        for name, words in HELP.items():
            self.assertIn(f"# HELP {name} {words}\n", text)
            kind = "counter" if name.startswith("ssh_") else "gauge"
            self.assertIn(f"# TYPE {name} {kind}\n", text)
        self.assertIn('\nssh_tunnel_open_count{cluster="beta"} 3.0\n', text)
        samples = {
            (sample.name.removesuffix("_total"), sample.labels["cluster"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        self.assertEqual(samples["ssh_tunnel_open_fail_count", "beta"], 1)
        self.assertEqual(samples["ssh_tunnel_open_count", ""], 5)

    def test_sums(self) -> None:
        """The samples of a name add up to upstream's single value."""
        families = text_string_to_metric_families(exposition(self.registry).decode())
        total = sum(
            s.value for family in families for s in family.samples if s.name == "ssh_tunnel_open_count_total"
        )
        self.assertEqual(total, 8)

    def test_escapes(self) -> None:
        """Any label value yields valid text."""
        self.readings['a"b\\c\nd'] = Reading(1)
        families = text_string_to_metric_families(exposition(self.registry).decode())
        labels = {sample.labels["cluster"] for family in families for sample in family.samples}
        self.assertIn('a"b\\c\nd', labels)


class MetricsPortTests(SynchronousTestCase):
    """The port, in memory."""

    def setUp(self) -> None:
        """Start a metrics port."""
        self.reactor = MemoryReactorClock()
        self.port = MetricsPort(
            self.reactor, registry_of(TunnelCollector(lambda: {"beta": Reading(3)})), "127.0.0.1", 21899
        )
        self.port.startService()
        (self.listening,) = self.reactor.tcpServers
        self.addCleanup(self.port.stopService)

    def connect(self) -> tuple[Any, StringTransport]:
        """Connect; return None if there are too many connections."""
        protocol = self.listening[1].buildProtocol(PEER)
        transport = StringTransport(peerAddress=PEER)
        if protocol is not None:
            protocol.makeConnection(transport)
        return protocol, transport

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Return head and body of the answer."""
        protocol, transport = self.connect()
        protocol.dataReceived(request + b"\r\nHost: x\r\n\r\n")
        head, _, body = transport.value().partition(b"\r\n\r\n")
        return head, body

    def test_address(self) -> None:
        """It listens on the given host and port."""
        self.assertEqual((self.listening[0], self.listening[3]), (21899, "127.0.0.1"))

    def test_get(self) -> None:
        """The page has the metrics in Prometheus' text format."""
        head, body = self.ask(b"GET /metrics HTTP/1.1")
        self.assertIn(b"HTTP/1.1 200 OK", head)
        self.assertIn(b"text/plain; version=0.0.4; charset=utf-8", head)
        self.assertIn(b'ssh_tunnel_open_count{cluster="beta"} 3.0\n', body)

    def test_head(self) -> None:
        """The answer to HEAD is the head of the answer to GET."""
        head, body = self.ask(b"HEAD /metrics HTTP/1.1")
        _, page = self.ask(b"GET /metrics HTTP/1.1")
        self.assertIn(b"HTTP/1.1 200 OK", head)
        self.assertIn(b"content-length: %d" % len(page), head.lower())
        self.assertEqual(body, b"")

    def test_other_methods(self) -> None:
        """Other methods are rejected."""
        for method in (b"POST", b"PUT", b"DELETE"):
            self.assertIn(b" 405 ", self.ask(method + b" /metrics HTTP/1.1")[0])

    def test_other_paths(self) -> None:
        """There are no other pages."""
        for path in (b"/", b"/metrics2", b"/health"):
            self.assertIn(b" 404 ", self.ask(b"GET " + path + b" HTTP/1.1")[0])

    def test_too_many(self) -> None:
        """Connections above the limit are closed at once, until one ends."""
        connections = [self.connect() for _ in range(CONNECTIONS)]
        self.assertTrue(all(protocol is not None for protocol, _ in connections))
        self.assertIsNone(self.connect()[0])
        connections[0][0].connectionLost(None)
        self.assertIsNotNone(self.connect()[0])

    def test_idle(self) -> None:
        """An idle connection is closed."""
        _, transport = self.connect()
        self.reactor.advance(IDLE - 1)
        self.assertFalse(transport.disconnecting)
        self.reactor.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_stop(self) -> None:
        """Stopping closes all connections, and can be repeated."""
        _, transport = self.connect()
        self.port.stopService()
        self.assertTrue(transport.disconnected)
        self.port.stopService()
