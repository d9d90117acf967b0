"""Tests of services that follow tunnels and records: conditions, revocation, timers."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import NOW, Bench
from tests.fakes.tunnels import FakeTunnel
from tower.clusters import Clusters
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.ssh_spec import SSHSpec
from tower.clusters.v1_tokens import V1Tokens, id_of_token
from tower.control.availability import AGENT_AVAILABLE, NODES_AVAILABLE, Availability
from tower.control.revocation import Revocation
from tower.kube.kubeconfig import KubeAccess
from tower.reactor.periodic import periodic
from tower.trust.vault import Vault
from tower.web.access.authentication import Authenticator

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
        """Return its condition."""
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
        """After the grace period it is false, and the message has the time."""
        tunnel = FakeTunnel("alpha")
        self.bench.tunnels.add(tunnel)
        self.bench.tunnels.remove(tunnel)
        self.bench.clock.advance(10)
        self.assertEqual(self.condition(), ("False", NOW + 10))
        found = self.bench.clusters.require("alpha").condition(AGENT_AVAILABLE)
        assert found is not None
        self.assertIn("last seen 10 s ago", found.message)

    def test_after_a_crash(self) -> None:
        """A condition of the previous run becomes false if no agent connects."""
        self.successResultOf(self.bench.clusters.set_condition("alpha", AGENT_AVAILABLE, "True", "R", "m"))
        self.service.stopService()
        self.service.startService()
        self.bench.clock.advance(10)
        self.assertEqual(self.condition(), ("False", NOW + 10))

    def test_nodes(self) -> None:
        """A cluster of type ssh has the condition NodesAvailable, with the text that users get."""
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

    def test_nodes_of_no_use(self) -> None:
        """Tunnels whose API server fails for the grace period do not count; the message has the reason."""
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


class RevocationTests(SynchronousTestCase):
    """Revocation of tunnels and sessions."""

    def setUp(self) -> None:
        """Start with two clusters with an agent each, and a session of jane in alpha."""
        self.bench = bench = Bench()
        for name in ("alpha", "beta"):
            self.successResultOf(bench.clusters.add(name))
        self.alpha, self.beta = FakeTunnel("alpha", "SHA256:a"), FakeTunnel("beta", "SHA256:b")
        for tunnel in (self.alpha, self.beta):
            bench.tunnels.add(tunnel)
        self.credential, secret = self.successResultOf(
            bench.credentials.issue_token("alpha", "jane", ["dev"], 600)
        )
        identity = Authenticator(bench.credentials, bench.clock).authenticate(None, secret.encode())
        self.ended: list[str] = []
        bench.sessions.enter(identity, "alpha", self.ended.append)
        service = Revocation(bench.store, bench.clusters, bench.credentials, bench.tunnels, bench.sessions)
        service.startService()
        self.addCleanup(service.stopService)

    def test_disable(self) -> None:
        """Disabling a cluster closes its tunnels and sessions, and no others."""
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.assertEqual(self.alpha.closings, ["cluster alpha is disabled"])
        self.assertEqual(self.ended, ["cluster alpha is disabled"])
        self.assertEqual(self.beta.closings, [])

    def test_remove(self) -> None:
        """Removing a cluster closes them too, and forgets it."""
        self.successResultOf(self.bench.clusters.remove("alpha"))
        self.assertEqual(self.alpha.closings, ["cluster alpha was removed"])
        self.assertEqual(len(self.ended), 1)
        self.assertIs(self.bench.tunnels.last_seen("alpha"), None)

    def test_agent_key(self) -> None:
        """Revoking an agent's key closes that agent's tunnels."""
        token = self.successResultOf(self.bench.tokens.mint("alpha", uses=2))
        for fingerprint in ("SHA256:a", "SHA256:c"):
            self.successResultOf(self.bench.tokens.enrol("alpha", token, fingerprint, b"blob"))
        other = FakeTunnel("alpha", "SHA256:c")
        self.bench.tunnels.add(other)
        self.successResultOf(self.bench.tokens.revoke("alpha", "SHA256:a"))
        self.assertEqual(self.alpha.closings, ["this agent's key was revoked"])
        self.assertEqual(other.closings, [])

    def test_token(self) -> None:
        """Revoking a v1 token closes the tunnels that use it, in that cluster only."""
        tokens = V1Tokens(self.bench.store, self.bench.clock)
        minted = [self.successResultOf(tokens.mint("alpha", 32 * letter)) for letter in "xy"]
        self.successResultOf(tokens.mint("beta", minted[0]))
        revoked, kept = map(id_of_token, minted)
        old = [
            FakeTunnel("alpha", revoked),
            FakeTunnel("alpha", revoked),
            FakeTunnel("alpha", kept),
            FakeTunnel("beta", revoked),
        ]
        for tunnel in old:
            self.bench.tunnels.add(tunnel)
        self.successResultOf(tokens.revoke("alpha", revoked))
        why = ["this agent's token was revoked"]
        self.assertEqual([tunnel.closings for tunnel in old], [why, why, [], []])
        self.assertEqual(self.alpha.closings, [])
        self.assertEqual(self.bench.tunnels.live("alpha"), [self.alpha, old[2]])

    def test_credential(self) -> None:
        """Revoking a credential closes its sessions."""
        self.successResultOf(self.bench.credentials.revoke(self.credential.id))
        self.assertEqual(len(self.ended), 1)
        self.assertEqual(self.alpha.closings, [])


class PeriodicTests(SynchronousTestCase):
    """Timers that continue after errors."""

    def test_survives(self) -> None:
        """A body that raises, at once or later, is called again, and its failure is logged."""
        clock, calls = Clock(), []

        def body() -> Deferred[None] | None:
            calls.append(clock.seconds())
            if len(calls) == 1:
                raise ZeroDivisionError
            if len(calls) == 2:
                return fail(ZeroDivisionError())
            return None

        timer = periodic(clock, 2.0, body)
        timer.startService()
        clock.pump([2.0, 2.0])
        timer.stopService()
        self.assertEqual(calls, [0.0, 2.0, 4.0])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
