"""Tests of `tower.rotation.users_ca`, with real TLS sessions in memory."""

from __future__ import annotations

import ssl
import tempfile

from twisted.internet.defer import Deferred

from tests.fakes.certificates import shake
from tests.fakes.rotations import RotationTestCase
from tower.clusters.credentials import Credential
from tower.errors import Conflict
from tower.trust.pki import Issued


class UsersCATests(RotationTestCase):
    def issue(self, user: str, ttl: float) -> tuple[Credential, Issued]:
        """Return a new certificate of a user."""
        issued = self.keys.users.client_certificate(user, (), "alpha", "uid", ttl, self.clock.seconds())
        registering = self.credentials.register_certificate("alpha", user, (), ttl, issued.digest)
        return self.successResultOf(registering), issued

    def accepted(self, issued: Issued) -> bool:
        """Return whether the front door accepts a client certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with tempfile.NamedTemporaryFile(suffix=".pem") as both:
            both.write(issued.key_pem + issued.certificate_pem)
            both.flush()
            context.load_cert_chain(both.name)
        try:
            server, _ = shake(self.serving.context, context)
        except ssl.SSLError:
            return False
        return server.getpeercert(binary_form=True) is not None

    def test_overlap(self) -> None:
        """Certificates of both CAs are accepted, also after a restart, until the old ones have expired."""
        _, old = self.issue("jane", 600.0)
        self.issue("tower-admin", 6000.0)
        self.clock.advance(1.0)
        rotation = self.begin("users-ca")
        self.assertEqual(self.renewals, 1)
        _, new = self.issue("bill", 6000.0)
        self.assertEqual(self.keys.users.hash, rotation.new)
        self.assertEqual(len(self.rotations.remaining(rotation).credentials), 1)
        for _ in range(2):
            self.assertTrue(self.accepted(old) and self.accepted(new))
            self.restart()
        self.clock.advance(600.0)
        self.check()
        self.assertIsNotNone(self.rotation("users-ca").finished)
        self.restart()
        self.assertEqual(self.keys.users.hashes, (rotation.new,))
        self.assertFalse(self.accepted(old))
        self.assertTrue(self.accepted(new))

    def test_begun_without_a_record(self) -> None:
        """After a begin whose record was not written, a second one keeps the first CA of all."""
        _, old = self.issue("jane", 600.0)
        procedure = self.rotations._procedures["users-ca"]
        self.clock.advance(1.0)
        begun = self.successResultOf(Deferred.fromCoroutine(procedure.begin()))
        rotation = self.begin("users-ca")
        self.assertEqual((rotation.old, rotation.new), begun)
        self.restart()
        self.assertTrue(self.accepted(old))

    def test_now(self) -> None:
        """At the date, certificates of the old CA are revoked; those of the new one, and tokens, stay."""
        jane, _ = self.issue("jane", 600.0)
        token, _ = self.successResultOf(self.credentials.issue_token("alpha", "jane", (), 600.0))
        self.clock.advance(1.0)
        self.begin("users-ca")
        bill, _ = self.issue("bill", 600.0)
        self.assertIsNotNone(self.begin("users-ca", 0.0).finished)
        revoked = [each.id for each in self.credentials.list("alpha") if each.revoked]
        self.assertEqual(revoked, [jane.id])
        self.assertNotIn(token.id, revoked)
        self.assertNotIn(bill.id, revoked)

    def test_cancel(self) -> None:
        """The new CA signs already, so a return is impossible."""
        self.issue("jane", 600.0)
        self.clock.advance(1.0)
        self.begin("users-ca")
        self.assertIn("--now", str(self.failureResultOf(self.rotations.cancel("users-ca"), Conflict).value))

    def test_stopped_before_the_switch(self) -> None:
        """A stop between the copy of the old CA and the switch leaves no overlap."""
        self.state.write("users-ca.old.pem", self.keys.users.current.pem)
        self.restart()
        self.assertEqual(len(self.keys.users.hashes), 1)
        self.assertIsNone(self.rotations.get("users-ca"))
