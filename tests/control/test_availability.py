"""Tests of `tower.control.availability`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tests.fakes.tunnels import FakeTunnel
from tower.clusters import Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.ssh_spec import SSHSpec
from tower.control.availability import AGENT_AVAILABLE, NODES_AVAILABLE, Availability
from tower.kube.kubeconfig import KubeAccess
from tower.trust.vault import Vault

OPEN = ("True", "TunnelOpen", "An SSH tunnel to a node is open.")


class AvailabilityTests(SynchronousTestCase):
    """The condition AgentAvailable."""

    def setUp(self) -> None:
        """Start with one cluster."""
        self.bench = Bench()
        self.successResultOf(self.bench.clusters.add("alpha"))
        self.service = Availability(self.bench.clock, self.bench.clusters, self.bench.tunnels)
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def condition(self) -> tuple[str, float] | None:
        """Return status and time of transition."""
        found = self.bench.clusters.require("alpha").condition(AGENT_AVAILABLE)
        return None if found is None else (found.status, found.last_transition)

    def add_gamma(self) -> None:
        """Add a cluster of type ssh."""
        bench = self.bench
        vault = Vault(f"{self.mktemp()}.key")
        clusters = Clusters(bench.store, None, bench.clock, MemberCredentials(bench.store, vault))
        access = KubeAccess("https://10.0.0.1:6443", insecure=True, token="t")
        self.successResultOf(clusters.add("gamma", ssh=SSHSpec("core", "/key"), access=access))
        bench.tunnels.explain("gamma", lambda: "No SSH tunnels currently open.")

    def gamma(self) -> tuple[str, str, str]:
        """Return its condition NodesAvailable."""
        found = self.bench.clusters.require("gamma").condition(NODES_AVAILABLE)
        assert found is not None
        return found.status, found.reason, found.message

    def test_connects(self) -> None:
        """An agent that connects makes it true at once."""
        self.bench.tunnels.add(FakeTunnel("alpha"))
        self.assertEqual(self.condition(), ("True", NOW))

    def test_quick_reconnect(self) -> None:
        """An agent that is back within the grace period leaves no transition."""
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        self.bench.clock.advance(5)
        self.bench.tunnels.remove(tunnel)
        self.bench.clock.advance(9.9)
        self.bench.tunnels.add(FakeTunnel("alpha"))
        self.bench.clock.advance(60)
        self.assertEqual(self.condition(), ("True", NOW))

    def test_stays_away(self) -> None:
        """After the grace period it is false, and the message has the time of the loss."""
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        self.bench.tunnels.remove(tunnel)
        self.bench.clock.advance(10)
        self.assertEqual(self.condition(), ("False", NOW + 10))
        found = self.bench.clusters.require("alpha").condition(AGENT_AVAILABLE)
        assert found is not None
        self.assertIn("last seen at 2027-01-15T08:00:00Z", found.message)

    def test_after_a_crash(self) -> None:
        """A condition that the last run left true becomes false if no agent connects."""
        self.successResultOf(self.bench.clusters.set_condition("alpha", AGENT_AVAILABLE, "True", "R", "m"))
        self.service.stopService()
        self.service.startService()
        self.bench.clock.advance(10)
        self.assertEqual(self.condition(), ("False", NOW + 10))

    def test_nodes(self) -> None:
        """A cluster without agents has its own condition, with the text that its users read."""
        self.add_gamma()
        tunnel = FakeTunnel("gamma")
        for change, wanted in (
            (self.bench.tunnels.add, OPEN),
            (self.bench.tunnels.remove, ("False", "NoTunnel", "No SSH tunnels currently open.")),
        ):
            change(tunnel)
            self.bench.clock.advance(10)
            self.assertEqual(self.gamma(), wanted)
            self.assertIsNone(self.bench.clusters.require("gamma").condition(AGENT_AVAILABLE))
        self.bench.tunnels.explain("gamma", None)
        self.assertIn("agent of cluster gamma", self.bench.tunnels.why_not("gamma"))

    def test_degraded_nodes(self) -> None:
        """Tunnels without good answers for the grace period do not count; the text has the reason."""
        self.add_gamma()
        bench = self.bench
        bench.tunnels.add(FakeTunnel("gamma"))
        bench.tunnels.note("gamma", "refused")
        bench.clock.advance(9)
        self.assertEqual(self.gamma(), OPEN)
        bench.tunnels.note("gamma", "refused again")
        bench.clock.advance(1)
        self.assertEqual(self.gamma(), ("False", "NodesDegraded", "refused again"))
        bench.tunnels.note("gamma", "timed out")
        bench.clock.advance(10)
        self.assertEqual(self.gamma(), ("False", "NodesDegraded", "timed out"))
        bench.tunnels.note("gamma", "")
        self.assertEqual(self.gamma(), OPEN)
        bench.tunnels.note("gamma", "refused")
        bench.clock.advance(5)
        bench.tunnels.note("gamma", "")
        bench.clock.advance(60)
        self.assertEqual(self.gamma(), OPEN)

    def test_stops(self) -> None:
        """A stopped service leaves no timer."""
        self.service.stopService()
        self.assertEqual(self.bench.clock.getDelayedCalls(), [])
        self.service.startService()
