"""Tests of `tower.rotation.serving_ca`, with real TLS sessions in memory."""

from __future__ import annotations

import ssl

from tests.fakes.certificates import NOW, shake
from tests.fakes.rotations import RotationTestCase
from tower.clusters.join_tokens import UnspentToken
from tower.errors import Conflict
from tower.rotation.assembly import ProxyKeys
from tower.rotation.serving_dependents import UNUSED_PERIOD
from tower.trust.pki import Authority


class ServingCATests(RotationTestCase):
    def accepts(self, pem: bytes) -> bool:
        """Return whether a client with these CAs accepts the front door's certificate."""
        context = ssl.create_default_context(cadata=pem.decode())
        context.verify_flags |= ssl.VerifyFlags(0x200000)  # no look at the clock: the test has its own
        try:
            shake(self.serving.context, context, "tower.example")
        except ssl.SSLCertVerificationError:
            return False
        return True

    def test_overlap(self) -> None:
        """Old clients are accepted until their credentials have expired; new kubeconfigs have both CAs."""
        old = self.keys.authority.pem
        self.successResultOf(self.credentials.issue_token("alpha", "jane", (), 600.0))
        self.successResultOf(self.credentials.issue_token("", "tower-admin", (), 6000.0))
        self.clock.advance(1.0)
        rotation = self.begin("serving-ca")
        self.assertEqual(len(self.rotations.remaining(rotation).credentials), 1)
        self.assertEqual(self.renewals, 1)
        both = self.keys.authority.pem
        self.assertEqual(both.count(b"BEGIN CERTIFICATE"), 2)
        self.successResultOf(self.credentials.issue_token("alpha", "bill", (), 6000.0))
        self.restart()
        self.assertEqual(self.keys.authority.pem, both)
        self.assertTrue(self.accepts(old) and self.accepts(both))
        self.clock.advance(600.0)
        self.check()
        self.assertIsNotNone(self.rotation("serving-ca").finished)
        self.assertFalse(self.accepts(old))
        self.assertTrue(self.accepts(both) and self.accepts(self.keys.authority.pem))
        self.restart()
        self.assertEqual(self.keys.authority.hashes, (rotation.new,))
        self.assertTrue(self.accepts(both))

    def test_agents(self) -> None:
        """Agents must have confirmed the next CA; agents of kubesphere-v1 cannot."""
        agent = self.enrol("alpha", "SHA256:a")
        token = self.successResultOf(self.v1_tokens.mint("beta"))
        self.v1_tokens.connected("beta", self.v1_tokens.check("beta", token))
        rotation = self.begin("serving-ca")
        self.assertEqual(agent.announcements[0].ca_hashes, (rotation.old, rotation.new))
        agent.confirm()
        self.settle()
        remaining = self.rotations.remaining(self.rotation("serving-ca"))
        (lacking,) = remaining.agents
        self.assertEqual((remaining.ready, lacking.cluster), (1, "beta"))
        self.assertIn("kubesphere-v1", lacking.reason)
        self.assertIsNotNone(self.begin("serving-ca", 0.0).finished)

    def test_unused_token(self) -> None:
        """An unused token of kubesphere-v1 is a join line that is waited for, but not for ever."""
        token = self.v1_tokens.check("beta", self.successResultOf(self.v1_tokens.mint("beta")))
        self.clock.advance(60.0)
        rotation = self.begin("serving-ca")
        self.successResultOf(self.v1_tokens.mint("alpha"))  # its manifest has both CAs
        remaining = self.rotations.remaining(rotation)
        self.assertEqual(remaining.agents, [])
        self.assertEqual(remaining.join_tokens, [UnspentToken("beta", NOW + UNUSED_PERIOD, token)])
        self.restart()
        self.clock.advance(UNUSED_PERIOD)
        self.check()
        self.assertIsNotNone(self.rotation("serving-ca").finished)

    def test_revoked_token(self) -> None:
        """A rotation does not wait for an unused token that was revoked."""
        token = self.v1_tokens.check("beta", self.successResultOf(self.v1_tokens.mint("beta")))
        self.clock.advance(60.0)
        self.assertIsNone(self.begin("serving-ca").finished)
        self.successResultOf(self.v1_tokens.revoke("beta", token))
        self.check()
        self.assertIsNotNone(self.rotation("serving-ca").finished)

    def test_cancel(self) -> None:
        """A canceled rotation drops the next CA."""
        self.enrol("alpha", "SHA256:a")
        rotation = self.begin("serving-ca")
        self.successResultOf(self.rotations.cancel("serving-ca"))
        self.assertEqual(self.keys.authority.hashes, (rotation.old,))
        self.restart()
        self.assertEqual(self.keys.authority.hashes, (rotation.old,))

    def test_given(self) -> None:
        """The CA of --ca-cert is not rotated by Tower."""
        given: Authority = self.keys.authority.current
        self.keys = ProxyKeys.load(self.state, given, self.clock.seconds())
        self.assertTrue(self.keys.is_given)
        procedure = self.rotations._procedures["serving-ca"]
        procedure._given = True  # type: ignore[attr-defined]
        self.assertIn(
            "--ca-cert", str(self.failureResultOf(self.rotations.begin("serving-ca"), Conflict).value)
        )
        self.assertIsNone(self.rotations.get("serving-ca"))
