"""Tests of tower.v2.enrol."""

from __future__ import annotations

from twisted.conch.ssh.common import NS
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.enrol import enrol_request
from tests.fakes.ssh_pairs import AGENT_KEY
from tower.conch.transport.fields import Malformed
from tower.conch.transport.keys import KeyPair
from tower.v2.enrol import ClaimRejected, method_of, publickey_request, read_claim

SESSION = b"s" * 32


class ClaimTests(SynchronousTestCase):
    """Encodes and parses claims."""

    def test_publickey(self) -> None:
        """A signed request is read as a claim with a proof and without a token."""
        body = publickey_request(SESSION, "alpha", AGENT_KEY)
        claim = read_claim(SESSION, body)
        self.assertEqual(method_of(body), b"publickey")
        self.assertEqual(
            (claim.cluster, claim.blob, claim.fingerprint), ("alpha", AGENT_KEY.blob, AGENT_KEY.fingerprint)
        )
        self.assertTrue(claim.proven)
        self.assertIsNone(claim.token)

    def test_enrol(self) -> None:
        """An enrolment is read as a claim with a proof and a token, and does not show the token."""
        body = enrol_request(SESSION, "alpha", AGENT_KEY, "tower-secret")
        claim = read_claim(SESSION, body)
        self.assertEqual(method_of(body), b"enrol@tower.kubesphere.io")
        self.assertTrue(claim.proven)
        self.assertEqual(claim.token, "tower-secret")
        self.assertNotIn("secret", repr(claim))

    def test_layout(self) -> None:
        """The bytes are those that docs/protocol gives, the signature's included."""
        head = NS(b"alpha") + NS(b"ssh-connection") + NS(b"enrol@tower.kubesphere.io")
        head += NS(b"tower-x") + NS(b"ssh-ed25519") + NS(AGENT_KEY.blob)
        signature = AGENT_KEY.sign(NS(SESSION) + b"\x32" + head)
        self.assertEqual(enrol_request(SESSION, "alpha", AGENT_KEY, "tower-x"), head + NS(signature))

    def test_question(self) -> None:
        """OpenSSH asks whether a key would do before it signs; nothing is proven by that."""
        body = NS(b"alpha") + NS(b"ssh-connection") + NS(b"publickey") + b"\0"
        body += NS(b"ssh-ed25519") + NS(AGENT_KEY.blob)
        self.assertFalse(read_claim(SESSION, body).proven)

    def test_another_connection(self) -> None:
        """A request recorded on one connection is worth nothing on another."""
        for body in (
            publickey_request(SESSION, "alpha", AGENT_KEY),
            enrol_request(SESSION, "alpha", AGENT_KEY, "tower-x"),
        ):
            with self.assertRaisesRegex(ClaimRejected, "signature"):
                read_claim(b"t" * 32, body)

    def test_every_field_is_signed(self) -> None:
        """Another cluster, token or key under the same signature is refused."""
        body = enrol_request(SESSION, "alpha", AGENT_KEY, "tower-x")
        other = KeyPair.generate()
        for old, new in ((b"alpha", b"omega"), (b"tower-x", b"tower-y"), (AGENT_KEY.blob, other.blob)):
            with self.assertRaisesRegex(ClaimRejected, "signature"):
                read_claim(SESSION, body.replace(old, new))

    def test_cut(self) -> None:
        """A request cut anywhere, or with something behind it, is malformed."""
        body = enrol_request(SESSION, "alpha", AGENT_KEY, "tower-x")
        for size in range(len(body)):
            with self.assertRaises(Malformed):
                read_claim(SESSION, body[:size])
        with self.assertRaises(Malformed):
            read_claim(SESSION, body + b"x")

    def test_not_accepted(self) -> None:
        """Wrong services, keys and names are rejected without a lookup."""

        def request(user: bytes, service: bytes, algorithm: bytes) -> bytes:
            head = NS(user) + NS(service) + NS(b"publickey") + b"\0"
            return head + NS(algorithm) + NS(AGENT_KEY.blob)

        for body in (
            request(b"alpha", b"ssh-userauth", b"ssh-ed25519"),
            request(b"alpha", b"ssh-connection", b"rsa-sha2-512"),
            request(b"", b"ssh-connection", b"ssh-ed25519"),
            request(b"a" * 64, b"ssh-connection", b"ssh-ed25519"),
            request("älpha".encode(), b"ssh-connection", b"ssh-ed25519"),
            enrol_request(SESSION, "alpha", AGENT_KEY, "x" * 257),
            enrol_request(SESSION, "alpha", AGENT_KEY, "tøken"),
        ):
            with self.assertRaises(ClaimRejected):
                read_claim(SESSION, body)
