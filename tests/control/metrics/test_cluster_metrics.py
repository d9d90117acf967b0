"""Tests of `tower.control.metrics.cluster_metrics`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tests.fakes.pages import page_of
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.member_credentials import MemberCredentials
from tower.control.metrics.cluster_metrics import ClusterCollector
from tower.kube.member_status import MemberStatus
from tower.metrics.page import registry_of
from tower.trust.vault import Vault

#: Most series of a cluster, all collectors together; the limit is 100.
SERIES = 45


class ClusterCollectorTests(SynchronousTestCase):
    """Metrics of clusters and their tunnels."""

    def setUp(self) -> None:
        """Collect from one cluster with an agent."""
        self.bench = bench = Bench()
        self.successResultOf(bench.clusters.add("alpha"))
        self.tunnels = bench.tunnels
        vault = Vault(Path(self.mktemp()), bench.clock.seconds)
        self.registry = registry_of(
            ClusterCollector(bench.clusters, bench.tunnels, MemberCredentials(bench.store, vault)),
        )

    def value(self, name: str, cluster: str = "alpha", **labels: str) -> float | None:
        """Return one sample."""
        return self.registry.get_sample_value(name, {"cluster": cluster, **labels})

    def test_available(self) -> None:
        """A cluster is available by its condition; a disabled one has no sample."""
        self.assertEqual(self.value("tower_cluster_available"), 0)
        for status, expected in (("True", 1), ("False", 0), ("Unknown", 0)):
            self.successResultOf(
                self.bench.clusters.set_condition("alpha", "Available", status, "Why", "")  # type: ignore[arg-type]
            )
            self.assertEqual(self.value("tower_cluster_available"), expected)
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.assertIsNone(self.value("tower_cluster_available"))

    def test_reachable(self) -> None:
        """Whether the API server answers has a sample once it is known."""
        self.assertIsNone(self.value("tower_cluster_member_reachable"))
        for status, expected in (("True", 1), ("False", 0), ("Unknown", None)):
            self.successResultOf(
                self.bench.clusters.set_condition("alpha", "APIServerReachable", status, "Why", "")  # type: ignore[arg-type]
            )
            self.assertEqual(self.value("tower_cluster_member_reachable"), expected)

    def test_credential(self) -> None:
        """The agent reports the end of the credential."""
        self.assertIsNone(self.value("tower_member_credential_expiry_timestamp_seconds"))
        tunnel = FakeTunnel("alpha")
        tunnel.member_status = MemberStatus(credential_expires=NOW + 3600)
        self.tunnels.add(tunnel)
        self.assertEqual(self.value("tower_member_credential_expiry_timestamp_seconds"), NOW + 3600)

    def test_tunnels(self) -> None:
        """Tunnels are counted by protocol, with the slowest round trip; protocols without tunnels too."""
        self.assertEqual(self.value("tower_tunnels", protocol="tower-v2"), 0)
        self.assertIsNone(self.value("tower_tunnel_rtt_seconds"))
        self.assertIsNone(self.value("tower_cluster_last_seen_timestamp_seconds"))
        fast, slow = FakeTunnel("alpha"), FakeTunnel("alpha")
        fast.round_trip, slow.round_trip = 0.01, 0.25
        self.tunnels.add(fast)
        self.tunnels.add(slow)
        self.assertEqual(self.value("tower_tunnels", protocol="tower-v2"), 2)
        self.assertEqual(self.value("tower_tunnels", protocol="kubesphere-v1"), 0)
        self.assertEqual(self.value("tower_tunnel_rtt_seconds"), 0.25)
        self.assertEqual(self.value("tower_cluster_last_seen_timestamp_seconds"), NOW)

    def test_counters(self) -> None:
        """Lost tunnels and refused streams are counted by reason; all reasons have samples."""
        counters = self.tunnels.counters.of("alpha")
        self.tunnels.counters.disconnected("alpha", "timeout")
        counters.not_opened("busy")
        self.assertEqual(self.value("tower_tunnel_disconnects_total", reason="timeout"), 1)
        self.assertEqual(self.value("tower_tunnel_disconnects_total", reason="peer-closed"), 0)
        self.assertEqual(self.value("tower_stream_open_failures_total", reason="busy"), 1)
        self.assertEqual(self.value("tower_stream_open_failures_total", reason="no-tunnel"), 0)

    def test_streams(self) -> None:
        """Streams, bytes and stalls are those of the cluster's traffic."""
        self.assertEqual(self.value("tower_streams"), 0)
        self.assertEqual(self.value("tower_stream_bytes_total", direction="to_member"), 0)
        self.assertEqual(self.value("tower_stream_bytes_total", direction="from_member"), 0)
        self.assertEqual(self.value("tower_stream_stall_seconds_total"), 0)

    def test_removed(self) -> None:
        """A removed cluster has no series, although its counters existed."""
        self.tunnels.counters.of("alpha").not_opened("busy")
        self.successResultOf(self.bench.clusters.remove("alpha"))
        page = page_of(self.registry)
        self.assertNotIn(b"alpha", page)

    def test_series(self) -> None:
        """A cluster has few series."""
        self.tunnels.add(FakeTunnel("alpha"))
        labels = [sample.labels for metric in self.registry.collect() for sample in metric.samples]
        self.assertLess(len([found for found in labels if "cluster" in found]), SERIES)
