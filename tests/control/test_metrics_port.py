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
    """The numbers and their names."""

    def setUp(self) -> None:
        """Have two clusters."""
        self.readings = {
            "beta": Reading(3, 1, 12, ["open", "open", "failed"]),
            "": Reading(5, 0, None),
        }
        self.registry = registry_of(TunnelCollector(lambda: self.readings))

    def value(self, name: str, cluster: str, **labels: str) -> float | None:
        """Return one number."""
        return self.registry.get_sample_value(name, {"cluster": cluster, **labels})

    def test_values(self) -> None:
        """Each number is there under upstream's exact name, by cluster."""
        self.assertEqual(self.value("ssh_tunnel_open_count", "beta"), 3)
        self.assertEqual(self.value("ssh_tunnel_open_fail_count", "beta"), 1)
        self.assertEqual(self.value("ssh_tunnel_open_count", ""), 5)
        self.assertEqual(self.value("apiserver_proxy_tunnel_sync_duration_seconds", "beta"), 12)
        self.assertEqual(self.value("apiserver_proxy_tunnel_sync_latency_secs", "beta"), 12)

    def test_states(self) -> None:
        """Nodes are counted by state, and a state that none is in is 0."""
        self.assertEqual(self.value("tower_node_tunnels", "beta", state="open"), 2)
        self.assertEqual(self.value("tower_node_tunnels", "beta", state="failed"), 1)
        self.assertEqual(self.value("tower_node_tunnels", "beta", state="leaving"), 0)

    def test_no_sync(self) -> None:
        """Where nobody lists nodes there is no lag to tell."""
        self.assertIsNone(self.value("apiserver_proxy_tunnel_sync_duration_seconds", ""))

    def test_at_each_scrape(self) -> None:
        """What counts is what is true when somebody asks."""
        self.readings["beta"] = Reading(4, 1, 601)
        self.assertEqual(self.value("apiserver_proxy_tunnel_sync_latency_secs", "beta"), 601)
        del self.readings["beta"]
        self.assertIsNone(self.value("ssh_tunnel_open_count", "beta"))

    def test_registries_are_apart(self) -> None:
        """Two proxies in one process do not get into each other's way."""
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
        """All samples of a name add up to what upstream's one number would be."""
        families = text_string_to_metric_families(exposition(self.registry).decode())
        total = sum(
            s.value for family in families for s in family.samples if s.name == "ssh_tunnel_open_count_total"
        )
        self.assertEqual(total, 8)

    def test_escapes(self) -> None:
        """Whatever a label holds, the text stays one that can be read."""
        self.readings['a"b\\c\nd'] = Reading(1)
        families = text_string_to_metric_families(exposition(self.registry).decode())
        labels = {sample.labels["cluster"] for family in families for sample in family.samples}
        self.assertIn('a"b\\c\nd', labels)


class MetricsPortTests(SynchronousTestCase):
    """The port, in memory."""

    def setUp(self) -> None:
        """Start one."""
        self.reactor = MemoryReactorClock()
        self.port = MetricsPort(
            self.reactor, registry_of(TunnelCollector(lambda: {"beta": Reading(3)})), "127.0.0.1", 21899
        )
        self.port.startService()
        (self.listening,) = self.reactor.tcpServers
        self.addCleanup(self.port.stopService)

    def connect(self) -> tuple[Any, StringTransport]:
        """Connect; the protocol is None when there are too many."""
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
        """It listens where it was told to."""
        self.assertEqual((self.listening[0], self.listening[3]), (21899, "127.0.0.1"))

    def test_get(self) -> None:
        """The page holds the numbers, as text that Prometheus knows."""
        head, body = self.ask(b"GET /metrics HTTP/1.1")
        self.assertIn(b"HTTP/1.1 200 OK", head)
        self.assertIn(b"text/plain; version=0.0.4; charset=utf-8", head)
        self.assertIn(b'ssh_tunnel_open_count{cluster="beta"} 3.0\n', body)

    def test_head(self) -> None:
        """HEAD is answered with the head alone, the same as to GET."""
        head, body = self.ask(b"HEAD /metrics HTTP/1.1")
        _, page = self.ask(b"GET /metrics HTTP/1.1")
        self.assertIn(b"HTTP/1.1 200 OK", head)
        self.assertIn(b"content-length: %d" % len(page), head.lower())
        self.assertEqual(body, b"")

    def test_other_methods(self) -> None:
        """Nothing can be done to numbers but read them."""
        for method in (b"POST", b"PUT", b"DELETE"):
            self.assertIn(b" 405 ", self.ask(method + b" /metrics HTTP/1.1")[0])

    def test_other_paths(self) -> None:
        """There is nothing else."""
        for path in (b"/", b"/metrics2", b"/health"):
            self.assertIn(b" 404 ", self.ask(b"GET " + path + b" HTTP/1.1")[0])

    def test_too_many(self) -> None:
        """Connections beyond the limit are closed at once; when one goes there is room again."""
        connections = [self.connect() for _ in range(CONNECTIONS)]
        self.assertTrue(all(protocol is not None for protocol, _ in connections))
        self.assertIsNone(self.connect()[0])
        connections[0][0].connectionLost(None)
        self.assertIsNotNone(self.connect()[0])

    def test_idle(self) -> None:
        """A connection on which nothing comes is closed."""
        _, transport = self.connect()
        self.reactor.advance(IDLE - 1)
        self.assertFalse(transport.disconnecting)
        self.reactor.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_stop(self) -> None:
        """Stopping closes what is open, and may be done twice."""
        _, transport = self.connect()
        self.port.stopService()
        self.assertTrue(transport.disconnected)
        self.port.stopService()
