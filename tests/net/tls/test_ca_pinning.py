"""Tests of `tower.net.tls.ca_pinning`."""

from __future__ import annotations

import ssl
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.chains import family, issue, pem, pem_file, server_context
from tests.fakes.pipes import FakePipe
from tower.errors import ConfigurationError
from tower.net.tls.ca_pinning import (
    ChainReader,
    ChainUnknown,
    NotThePinnedCA,
    find_authority,
    key_hash,
    parse_ca_hash,
    pinned_context,
    strict_context,
)
from tower.net.tls.session import TLSSession


class PinningTests(SynchronousTestCase):
    def test_parse(self) -> None:
        """A hash is read in any case of letters; anything else is named."""
        self.assertEqual(parse_ca_hash("SHA256:" + "AB" * 32), "sha256:" + "ab" * 32)
        for text in (
            "",
            "sha256:",
            "ab" * 32,
            "sha1:" + "ab" * 20,
            "sha256:" + "xy" * 32,
            "sha256:" + "ab" * 33,
        ):
            error = self.assertRaises(ConfigurationError, parse_ca_hash, text)
            self.assertIn(f"--ca-hash {text!r}", str(error))

    def test_key_hash(self) -> None:
        """The hash is over the public key, as in kubeadm's discovery."""
        root, _, _ = family()
        der = root[1].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.assertEqual(key_hash(root[0]), "sha256:" + sha256(der).hexdigest())

    def test_find(self) -> None:
        """The CA with one of the hashes is found anywhere in the chain."""
        root, middle, leaf = family()
        chain = [leaf[0], middle[0], root[0]]
        self.assertIs(find_authority(chain, [key_hash(middle[0])]), middle[0])
        self.assertIs(find_authority(chain, ["sha256:" + "0" * 64, key_hash(root[0])]), root[0])

    def test_not_found(self) -> None:
        """Without it, the error has the hashes of the chain, and the cure."""
        root, middle, leaf = family()
        error = self.assertRaises(NotThePinnedCA, find_authority, [leaf[0], middle[0]], [key_hash(root[0])])
        self.assertIn(f"its CAs have {key_hash(middle[0])};", str(error))
        self.assertIn("join line", str(error))
        self.assertRaises(NotThePinnedCA, find_authority, [], [key_hash(root[0])])

    def test_leaf(self) -> None:
        """A server's certificate is not accepted as a CA, regardless of its hash."""
        _, _, leaf = family()
        self.assertRaises(NotThePinnedCA, find_authority, [leaf[0]], [key_hash(leaf[0])])

    def test_bad_ca_file(self) -> None:
        """A CA file that cannot be used names itself."""
        self.assertIn(
            "/nonexistent", str(self.assertRaises(ConfigurationError, strict_context, "/nonexistent"))
        )
        with pem_file(b"nothing") as path:
            self.assertIn(path, str(self.assertRaises(ConfigurationError, strict_context, path)))

    def shake(self, client: ssl.SSLContext, server: ssl.SSLContext, name: str = "tower.example") -> None:
        """Shake hands in memory; raise what the client raises."""
        near = TLSSession(client, server_side=False, server_hostname=name)
        far = TLSSession(server, server_side=True)
        for _ in range(5):
            near.handshake()
            far.feed(memoryview(near.take()))
            far.handshake()
            near.feed(memoryview(far.take()))

    def test_trust(self) -> None:
        """A context with a pinned CA, root or not, verifies the right name only."""
        root, middle, leaf = family()
        server = server_context(leaf, middle[0], root[0])
        for authority in (root[0], middle[0]):
            self.shake(pinned_context(authority), server)
            self.shake(pinned_context(authority), server, "127.0.0.1")
            self.assertRaises(
                ssl.SSLCertVerificationError, self.shake, pinned_context(authority), server, "other.example"
            )

    def test_distrust(self) -> None:
        """A context with a pinned CA accepts no other CA."""
        _, middle, leaf = family()
        stranger = issue("root", authority=True)[0]
        server = server_context(leaf, middle[0])
        self.assertRaises(ssl.SSLCertVerificationError, self.shake, pinned_context(stranger), server)
        self.assertRaises(ssl.SSLCertVerificationError, self.shake, strict_context(), server)

    def test_ca_file(self) -> None:
        """A context with a CA file accepts its certificates."""
        root, middle, leaf = family()
        with pem_file(pem(root[0])) as path:
            self.shake(strict_context(path), server_context(leaf, middle[0]))


class ChainReaderTests(SynchronousTestCase):
    def read(self, step: int) -> list[x509.Certificate]:
        """Return what a server shows whose answers come in pieces of *step* bytes."""
        root, middle, leaf = family()
        pipe = FakePipe()
        reader = ChainReader(pipe, "tower.example")
        server = TLSSession(server_context(leaf, middle[0], root[0]), server_side=True)
        reader.start()
        for _ in range(3):
            server.feed(memoryview(pipe.taken()))
            server.handshake()
            wire = server.take()
            for i in range(0, len(wire), step):
                if not pipe.lost:
                    pipe.deliver(wire[i : i + step])
        self.assertTrue(pipe.aborted)
        self.assertEqual(server.object.server_side, True)
        return self.successResultOf(reader.chain)

    def test_chain(self) -> None:
        """The chain is learnt however the network cuts the stream, and the connection is let go."""
        root, middle, leaf = family()
        for step in (1, 100, 100000):
            self.assertEqual(self.read(step), [leaf[0], middle[0], root[0]])

    def test_no_tls(self) -> None:
        """A server that speaks something else is a failure."""
        pipe = FakePipe()
        reader = ChainReader(pipe, "127.0.0.1")
        reader.start()
        pipe.deliver(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        failure = self.failureResultOf(reader.chain, ChainUnknown)
        self.assertIn("wrong version number", str(failure.value))

    def test_cut(self) -> None:
        """A cut or a lost connection is a failure."""
        for event in (FakePipe.end, FakePipe.lose):
            pipe = FakePipe()
            reader = ChainReader(pipe, "127.0.0.1")
            reader.start()
            event(pipe)
            self.failureResultOf(reader.chain, ChainUnknown)

    def test_cancel(self) -> None:
        """Cancelling lets the connection go."""
        pipe = FakePipe()
        reader = ChainReader(pipe, "127.0.0.1")
        reader.start()
        reader.chain.cancel()
        self.assertTrue(pipe.lost)
        self.failureResultOf(reader.chain)
