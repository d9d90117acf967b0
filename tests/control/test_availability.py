"""Tests of `tower.control.availability`."""

from __future__ import annotations

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tests.fakes.tunnels import FakeTunnel
from tower.clusters import Clusters
from tower.clusters.cluster import Condition
from tower.clusters.condition_types import (
    AGENT_AVAILABLE,
    MEMBER_CHECKS,
    NODES_AVAILABLE,
    NOT_CHECKED,
    RESTORED,
)
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.ssh_spec import SSHSpec
from tower.control.availability import Availability
from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_status import Check, MemberStatus
from tower.trust.vault import Vault

OPEN = ("True", "TunnelOpen", "An SSH tunnel to a node is open.")


GOOD = Check("True", "Reachable", "it answers")
WORKS = MemberStatus(GOOD, GOOD, GOOD, version="v1.31.2")
DOWN = MemberStatus(api_server=Check("False", "ConnectionRefused", "start it"))


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
        self.bench.tunnels.add(tunnel)
        self.bench.tunnels.remove(tunnel)
        self.bench.clock.advance(10)
        self.assertEqual(self.gamma(), ("False", "NoTunnel", "No SSH tunnel to a node is open."))
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
        self.assertEqual(self.gamma(), ("False", "NodesDegraded", "Refused again."))
        bench.tunnels.note("gamma", "timed out")
        bench.clock.advance(30)
        self.assertEqual(self.gamma(), ("False", "NodesDegraded", "Timed out."))
        bench.tunnels.note("gamma", "")
        self.assertEqual(self.gamma(), OPEN)
        bench.tunnels.note("gamma", "refused")
        bench.clock.advance(5)
        bench.tunnels.note("gamma", "")
        bench.clock.advance(60)
        self.assertEqual(self.gamma(), OPEN)

    def sum(self, name: str = "alpha") -> tuple[str, str]:
        """Return status and reason of the condition Available."""
        found = self.bench.clusters.require(name).condition("Available")
        assert found is not None
        return found.status, found.reason

    def statuses(self) -> list[str]:
        """Return the status of the three checks."""
        cluster = self.bench.clusters.require("alpha")
        found = [cluster.condition(kind) for kind in MEMBER_CHECKS]
        return [condition.status for condition in found if condition is not None]

    def report(self, tunnel: FakeTunnel, status: MemberStatus) -> None:
        """Let the agent report *status*."""
        tunnel.member_status = status
        tunnel.on_change()

    def test_report(self) -> None:
        """The agent's reports are written at once, both ways; before the first the sum is unknown."""
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        self.assertEqual((self.sum(), self.statuses()), (("Unknown", "NotChecked"), ["Unknown"] * 3))
        self.report(tunnel, WORKS)
        self.assertEqual((self.sum(), self.statuses()), (("True", "Ready"), ["True"] * 3))
        self.report(tunnel, DOWN)
        self.assertEqual(self.sum(), ("False", "ConnectionRefused"))
        self.assertEqual(self.statuses(), ["False", "Unknown", "Unknown"])
        self.bench.clock.advance(20)
        self.report(tunnel, WORKS)
        self.assertEqual(self.sum(), ("True", "Ready"))
        self.assertEqual(self.condition(), ("True", NOW))

    def test_agent_without_reports(self) -> None:
        """An agent that reports nothing leaves the checks unknown, and the cluster available."""
        self.bench.tunnels.add(FakeTunnel("alpha"))
        self.bench.clock.advance(10)
        self.assertEqual((self.sum(), self.statuses()), (("True", "AgentConnected"), ["Unknown"] * 3))

    def test_broken_agent_reconnects(self) -> None:
        """While an agent reconnects and has not reported yet, the last known state counts."""
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        self.report(tunnel, DOWN)
        self.bench.tunnels.remove(tunnel)
        self.bench.clock.advance(9)
        self.assertEqual(self.sum(), ("False", "ConnectionRefused"))
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        self.bench.clock.advance(9)
        self.assertEqual(self.sum(), ("False", "ConnectionRefused"))
        self.report(tunnel, WORKS)
        self.assertEqual(self.sum(), ("True", "Ready"))

    def test_agent_leaves(self) -> None:
        """Without an agent the checks are unknown after the grace period, and the reason is the agent's."""
        tunnel = FakeTunnel("alpha", member_status=WORKS)
        self.bench.tunnels.add(tunnel)
        self.bench.tunnels.remove(tunnel)
        self.assertEqual(self.sum(), ("True", "Ready"))
        self.bench.clock.advance(10)
        self.assertEqual((self.sum(), self.statuses()), (("False", "AgentDisconnected"), ["Unknown"] * 3))

    def test_silent_agent(self) -> None:
        """An agent that does not answer makes it false at once, and true with its next byte."""
        tunnel = FakeTunnel("alpha", member_status=WORKS)
        tunnels, clock = self.bench.tunnels, self.bench.clock
        tunnels.add(tunnel)
        for _ in range(2):
            clock.advance(60)
            tunnels.note_silence(tunnel, 15.0)
            self.assertEqual(self.condition(), ("False", clock.seconds()))
            found = self.sum(), self.statuses()
            self.assertEqual(found, (("False", "AgentNotResponding"), ["Unknown"] * 3))
            clock.advance(60)
            self.assertEqual(self.sum(), ("False", "AgentNotResponding"))
            tunnels.note_silence(tunnel, None)
            self.assertEqual((self.sum(), self.statuses()), (("True", "Ready"), ["True"] * 3))
        clock.advance(60)
        tunnels.note_silence(tunnel, 15.0)
        tunnels.remove(tunnel)
        clock.advance(10)
        self.assertEqual(self.sum(), ("False", "AgentDisconnected"))

    def test_disabled_and_enabled(self) -> None:
        """The reason follows each change of the spec at once, also soon after other writes."""
        for number in range(20):
            self.successResultOf(self.bench.clusters.set_enabled("alpha", enabled=bool(number % 2)))
            wanted = "AgentNeverConnected" if number % 2 else "Disabled"
            self.assertEqual(self.sum(), ("False", wanted))

    def test_several_agents(self) -> None:
        """A cluster with one working agent is available; the broken one is named."""
        for number, status in enumerate((DOWN, WORKS)):
            self.bench.tunnels.add(FakeTunnel("alpha", peer=f"192.0.2.{number}:1", member_status=status))
        self.assertEqual((self.sum(), self.statuses()), (("True", "AgentDegraded"), ["True"] * 3))
        found = self.bench.clusters.require("alpha").condition("Available")
        assert found is not None
        self.assertIn("192.0.2.0:1: start it", found.message)

    def test_one_write(self) -> None:
        """A report is one write."""
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        version = self.bench.store.version
        self.report(tunnel, WORKS)
        self.assertEqual(self.bench.store.version, version + 1)

    def test_never_connected(self) -> None:
        """A cluster that was just added is unavailable at once; its removal leaves nothing behind."""
        self.successResultOf(self.bench.clusters.add("beta"))
        self.assertEqual(self.sum("beta"), ("False", "AgentNeverConnected"))
        self.successResultOf(self.bench.clusters.remove("beta"))
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.assertEqual(self.bench.clock.getDelayedCalls(), [])

    def test_unknown_past(self) -> None:
        """Agents of a cluster from an earlier run, without conditions, have the grace period."""
        self.service.stopService()
        self.successResultOf(self.bench.clusters.add("beta"))
        self.bench.clock.advance(1)
        self.service.startService()
        self.assertEqual(self.sum("beta"), ("Unknown", "NotChecked"))
        self.bench.clock.advance(10)
        self.assertEqual(self.sum("beta"), ("False", "AgentNeverConnected"))

    def test_restored(self) -> None:
        """A cluster from a backup stays unknown until its agent has reported, or the grace period ends."""
        kinds = ("Available", AGENT_AVAILABLE, *MEMBER_CHECKS)
        for returns, wanted in ((True, ("True", "Ready")), (False, ("False", "AgentDisconnected"))):
            self.service.stopService()
            restored = [Condition(kind, "Unknown", NOT_CHECKED, RESTORED, 0.0) for kind in kinds]
            self.successResultOf(self.bench.clusters.set_conditions("alpha", restored))
            self.service.startService()
            self.assertEqual(self.sum(), ("Unknown", "NotChecked"))
            tunnel = FakeTunnel("alpha")
            if returns:
                self.bench.tunnels.add(tunnel)
                self.assertEqual(self.sum(), ("Unknown", "NotChecked"))
                self.report(tunnel, WORKS)
            else:
                self.bench.clock.advance(9)
                self.assertEqual(self.sum(), ("Unknown", "NotChecked"))
                self.bench.clock.advance(1)
            self.assertEqual(self.sum(), wanted)
            if returns:
                self.bench.tunnels.remove(tunnel)
                self.bench.clock.advance(60)

    def test_first_connect(self) -> None:
        """The first line of the log about a connected agent is the result of its first check."""
        with capturedLogs() as events:
            for name in ("alpha", "beta"):
                if name == "beta":
                    self.successResultOf(self.bench.clusters.add("beta"))
                tunnel = FakeTunnel(name)
                self.bench.tunnels.add(tunnel)
                self.assertEqual(self.sum(name), ("Unknown", "NotChecked"))
                if name == "alpha":
                    self.report(tunnel, WORKS)
            self.bench.clock.advance(9)
            self.assertEqual(self.sum("beta"), ("Unknown", "NotChecked"))
            self.bench.clock.advance(20)
        found = [
            (event["cluster"], event["reason"]) for event in events if "is available" in event["log_format"]
        ]
        self.assertEqual(found, [("alpha", "Ready"), ("beta", "AgentConnected")])
        for event in events:
            self.assertNotIn("cannot be reached", event.get("detail", ""))

    def test_disabled(self) -> None:
        """A disabled cluster is not available, at once."""
        self.bench.tunnels.add(FakeTunnel("alpha", member_status=WORKS))
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.assertEqual(self.sum(), ("False", "Disabled"))

    def test_disabled_agents(self) -> None:
        """The condition of a disabled cluster's agents does not blame them."""
        tunnel = FakeTunnel("alpha", member_status=WORKS)
        self.bench.tunnels.add(tunnel)
        self.bench.clock.advance(20)
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.bench.tunnels.remove(tunnel)
        self.bench.clock.advance(20)
        found = self.bench.clusters.require("alpha").condition("AgentAvailable")
        assert found is not None
        self.assertEqual((found.status, found.reason), ("False", "Disabled"))
        self.assertIn("agents of a disabled cluster are rejected", found.message)

    def test_enabled_without_agent(self) -> None:
        """A cluster that is enabled soon after it was disabled is not available until an agent connects."""
        tunnel = FakeTunnel("alpha", member_status=WORKS)
        self.bench.tunnels.add(tunnel)
        self.bench.clock.advance(20)
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.bench.tunnels.remove(tunnel)
        with capturedLogs() as events:
            self.successResultOf(self.bench.clusters.set_enabled("alpha", True))
            self.assertEqual(self.sum(), ("False", "AgentDisconnected"))
        self.assertNotIn("Ready", [event.get("reason") for event in events])
        self.bench.tunnels.add(tunnel)
        self.assertEqual(self.sum(), ("True", "Ready"))

    def test_toggled_repeatedly(self) -> None:
        """That is so, too, if the limit of writes has delayed the conditions of the disabled cluster."""
        tunnel = FakeTunnel("alpha", member_status=WORKS)
        self.bench.tunnels.add(tunnel)
        self.bench.clock.advance(20)
        for _ in range(4):
            self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
            self.bench.tunnels.remove(tunnel)
            self.bench.clock.advance(1)
            self.successResultOf(self.bench.clusters.set_enabled("alpha", True))
            self.assertEqual(self.sum(), ("False", "AgentDisconnected"))
            self.bench.tunnels.add(tunnel)
        self.bench.clock.advance(20)
        self.assertEqual(self.sum(), ("True", "Ready"))

    def test_known_without_a_tunnel(self) -> None:
        """A credential that cannot be used shows even if no tunnel is open; the missing tunnel is first."""
        self.add_gamma()
        unusable = MemberStatus(credential=Check("False", "CredentialInvalid", "set it"))
        self.bench.tunnels.report("gamma", unusable)
        self.bench.clock.advance(10)
        self.assertEqual(self.sum("gamma"), ("False", "NoTunnel"))
        found = self.bench.clusters.require("gamma").condition("MemberCredential")
        assert found is not None
        self.assertEqual((found.status, found.message), ("False", "Set it."))

    def test_stops(self) -> None:
        """A stopped service leaves no timer."""
        self.service.stopService()
        self.assertEqual(self.bench.clock.getDelayedCalls(), [])
        self.service.startService()
