"""Tests of `tower.nodes.tunnel_metrics`."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pages import page_of
from tower.metrics.page import registry_of
from tower.nodes.tunnel_metrics import Reading, TunnelCollector

SYNC_HELP = "The time since the last successful synchronization of the SSH tunnels for proxy requests."
HELP = {
    "ssh_tunnel_open_count": "Counter of ssh tunnel total open attempts",
    "ssh_tunnel_open_fail_count": "Counter of ssh tunnel failed open attempts",
    "apiserver_proxy_tunnel_sync_duration_seconds": SYNC_HELP,
    "apiserver_proxy_tunnel_sync_latency_secs": "(Deprecated) " + SYNC_HELP,
    "tower_node_tunnels": "Number of nodes by the state of their SSH tunnel.",
}


class TunnelCollectorTests(SynchronousTestCase):
    """Metrics of node tunnels."""

    def setUp(self) -> None:
        """Make two clusters."""
        self.readings = {
            "beta": Reading(3, 1, 12, ["open", "open", "failed"]),
            "": Reading(5, 0, None),
        }
        self.registry = registry_of(TunnelCollector(lambda: sorted(self.readings.items())))

    def value(self, name: str, cluster: str, **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(name, {"cluster": cluster, **labels})

    def page(self) -> bytes:
        """Return the page."""
        return page_of(self.registry)

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
        other = registry_of(TunnelCollector(list))
        self.assertIsNone(other.get_sample_value("ssh_tunnel_open_count", {"cluster": "beta"}))

    def test_exposition(self) -> None:
        """The text has upstream's names, types and help, which Prometheus' own parser reads back.

        It is the parser that puts ``_total`` behind each counter's name.
        """
        text = self.page().decode()
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
        families = text_string_to_metric_families(self.page().decode())
        total = sum(
            s.value for family in families for s in family.samples if s.name == "ssh_tunnel_open_count_total"
        )
        self.assertEqual(total, 8)

    def test_escapes(self) -> None:
        """Any label value yields valid text."""
        self.readings['a"b\\c\nd'] = Reading(1)
        families = text_string_to_metric_families(self.page().decode())
        labels = {sample.labels["cluster"] for family in families for sample in family.samples}
        self.assertIn('a"b\\c\nd', labels)
