"""Tests of `tower.control.revocation`."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.control.bench import Bench
from tests.fakes.credentials import authenticated, authenticator
from tests.fakes.tunnels import FakeTunnel
from tower.clusters.object_meta import DRAIN
from tower.clusters.v1_tokens import V1Tokens, id_of_token
from tower.control.revocation import Revocation
from tower.tunnels.drains import CHECK_PERIOD, ClusterDrains


class RevocationTests(SynchronousTestCase):
    """Tunnels and sessions end when they are revoked."""

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
        identity = authenticated(authenticator(bench.credentials, bench.clock), None, secret.encode())
        self.ended: list[str] = []
        bench.sessions.enter(identity, "alpha", self.ended.append)
        self.closed: list[str] = []
        drains = ClusterDrains(bench.clock, bench.tunnels, self.closed.append)
        service = Revocation(
            bench.store, bench.clusters, bench.credentials, bench.tunnels, bench.sessions, drains
        )
        service.startService()
        self.addCleanup(service.stopService)

    def test_disable(self) -> None:
        """Disabling a cluster cuts its tunnels and sessions, and no others."""
        self.successResultOf(self.bench.clusters.set_enabled("alpha", False))
        self.assertEqual(self.alpha.closings, ["cluster alpha is disabled"])
        self.assertEqual(self.ended, ["cluster alpha is disabled"])
        self.assertEqual(self.beta.closings, [])

    def disable(self, drain: str) -> None:
        """Disable alpha with that annotation."""
        cluster = self.bench.clusters.require("alpha")
        changed = evolve(cluster, enabled=False, annotations={DRAIN: drain})
        self.successResultOf(self.bench.clusters.change("alpha", lambda _: changed))

    def test_drain(self) -> None:
        """With a drain, streams may end first; then the rest is cut."""
        self.alpha.streams = 2
        self.disable("30s")
        self.bench.clock.pump([CHECK_PERIOD] * 5)
        self.assertEqual((self.alpha.closings, self.ended), ([], []))
        self.assertEqual(set(self.closed), {"alpha"})
        self.alpha.streams = 0
        self.bench.clock.advance(CHECK_PERIOD)
        self.assertEqual((self.alpha.closings, len(self.ended)), (["cluster alpha is disabled"], 1))
        self.assertEqual(self.bench.clock.getDelayedCalls(), [])

    def test_drain_ends(self) -> None:
        """A stream that does not end is cut at the end of the drain; without streams there is no wait."""
        self.alpha.streams = 1
        self.disable("2s")
        self.bench.clock.pump([CHECK_PERIOD] * 9)
        self.assertEqual(self.alpha.closings, [])
        self.bench.clock.pump([CHECK_PERIOD] * 2)
        self.assertEqual(self.alpha.closings, ["cluster alpha is disabled"])

    def test_drain_without_streams(self) -> None:
        """Without open streams nothing is waited for."""
        self.alpha.streams = 0
        self.disable("30s")
        self.assertEqual(self.alpha.closings, ["cluster alpha is disabled"])

    def test_drain_is_cancelled(self) -> None:
        """Enabling the cluster, or disabling it without a drain, ends the wait; so does a stop."""
        self.alpha.streams = 1
        self.disable("30s")
        self.successResultOf(self.bench.clusters.set_enabled("alpha", True))
        self.bench.clock.advance(60)
        self.assertEqual(self.alpha.closings, [])
        self.disable("30s")
        self.disable("nonsense")
        self.assertEqual(self.alpha.closings, ["cluster alpha is disabled"])
        self.assertEqual(self.bench.clock.getDelayedCalls(), [])

    def test_remove(self) -> None:
        """So does removing it, and its records are forgotten."""
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
        """Revoking a token of old agents cuts those that used it, in that cluster alone."""
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
        """Revoking a credential ends its sessions."""
        self.successResultOf(self.bench.credentials.revoke(self.credential.id))
        self.assertEqual(len(self.ended), 1)
        self.assertEqual(self.alpha.closings, [])
