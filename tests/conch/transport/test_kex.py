"""Tests of tower.conch.transport.kex."""

from __future__ import annotations

from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from twisted.conch.ssh.common import MP, NS
from twisted.conch.ssh.transport import SSHCiphers, SSHTransportBase
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.fields import Malformed
from tower.conch.transport.kex import (
    EXCHANGES,
    STRICT_CLIENT,
    STRICT_SERVER,
    Curve25519Half,
    HybridHalf,
    KexOrder,
    NewKeys,
    OutOfOrder,
    client_half,
    derived,
    exchanges_of,
    goes_during_exchange,
    make_kexinit,
)
from tower.conch.transport.packets import LONGEST_PACKET


class KexInitTests(SynchronousTestCase):
    """make_kexinit and exchanges_of."""

    def test_round_trip(self) -> None:
        """The list of exchanges is read back; cookies differ."""
        lists = ([b"one", b"two"], [b"key"], [b"cipher"], [b"mac"], [b"none"])
        first, second = make_kexinit(*lists), make_kexinit(*lists)
        self.assertEqual(first[0], 20)
        self.assertEqual(exchanges_of(first[1:]), (b"one", b"two"))
        self.assertNotEqual(first[1:17], second[1:17])
        self.assertEqual(first[17:], second[17:])

    def test_malformed(self) -> None:
        """A KEXINIT that is cut, too long, or has an empty list is refused."""
        whole = make_kexinit([b"x"], [b"k"], [b"c"], [b"m"], [b"n"])[1:]
        for packet in (*(whole[:size] for size in range(len(whole))), whole + b"x"):
            with self.assertRaises(Malformed):
                exchanges_of(packet)
        for empty in range(5):
            lists = [[b"x"], [b"k"], [b"c"], [b"m"], [b"n"]]
            lists[empty] = []
            with self.assertRaises(Malformed):
                exchanges_of(make_kexinit(*lists)[1:])

    def test_offer(self) -> None:
        """The hybrid exchange is preferred; nothing that rests on SHA-1 or finite fields is offered."""
        self.assertEqual(EXCHANGES[:2], [b"mlkem768x25519-sha256", b"curve25519-sha256"])
        self.assertTrue(all(b"25519" in name for name in EXCHANGES))


class KexOrderTests(SynchronousTestCase):
    """KexOrder."""

    def test_whole_life(self) -> None:
        """Both sides' messages are admitted in their order, in the first exchange and in another."""
        for is_client, second in ((True, 31), (False, 30)):
            order = KexOrder(is_client=is_client)
            for _ in range(2):
                order.check(20)
                order.started([b"x"], 0)
                order.check(second)
                order.agreed()
                order.check(21)
                order.finished()
                for kind in (1, 2, 3, 4, 50, 80, 90, 94, 100, 192):
                    order.check(kind)

    def test_strict_first_exchange(self) -> None:
        """With strict key exchange nothing may slip into the first one, but a goodbye."""
        order = KexOrder(is_client=False)
        order.started([b"x", STRICT_CLIENT], 0)
        for stage in (30, 21):
            order.check(1)
            for kind in (2, 3, 4, 5, 20, 50, 80, 94):
                with self.assertRaises(OutOfOrder) as caught:
                    order.check(kind)
                self.assertEqual(caught.exception.kind, kind)
            order.check(stage)
            order.agreed()

    def test_strict_needs_kexinit_first(self) -> None:
        """With strict key exchange a packet before the first KEXINIT is Terrapin's beginning."""
        for is_client, marker in ((True, STRICT_SERVER), (False, STRICT_CLIENT)):
            with self.assertRaises(OutOfOrder):
                KexOrder(is_client=is_client).started([marker], 1)

    def test_the_other_sides_marker(self) -> None:
        """Only the marker of the peer's own role counts."""
        order = KexOrder(is_client=True)
        order.started([STRICT_CLIENT], 1)
        self.assertFalse(order.strict)

    def test_lenient(self) -> None:
        """A peer without strict key exchange may ignore and debug in it, and nothing else."""
        order = KexOrder(is_client=False)
        order.check(2)
        order.started([b"x"], 1)
        for kind in (2, 3, 4):
            order.check(kind)
        for kind in (5, 6, 20, 21, 50, 94):
            with self.assertRaises(OutOfOrder):
                order.check(kind)

    def test_later_exchange(self) -> None:
        """Between its KEXINIT and its NEWKEYS data is not allowed; the first exchange sets strictness."""
        order = KexOrder(is_client=False)
        order.started([STRICT_CLIENT], 0)
        order.agreed()
        order.finished()
        order.started([b"x"], 50)
        self.assertTrue(order.strict)
        order.check(2)
        for kind in (50, 80, 94, 21):
            with self.assertRaises(OutOfOrder):
                order.check(kind)

    def test_no_exchange(self) -> None:
        """Outside of an exchange its messages make no sense."""
        order = KexOrder(is_client=True)
        order.finished()
        for kind in (21, 30, 31, 34, 49):
            with self.assertRaises(OutOfOrder):
                order.check(kind)

    def test_ours(self) -> None:
        """During an exchange we send its messages, and those that RFC 4253 section 7.1 allows."""
        allowed = [kind for kind in range(1, 256) if goes_during_exchange(kind)]
        self.assertEqual(allowed, [1, 2, 3, 4, *range(21, 50)])


class ClientHalfTests(SynchronousTestCase):
    """The client's halves, against the other halves made with plain cryptography."""

    def test_curve25519(self) -> None:
        """Both sides have the same secret, encoded as mpint (RFC 8731)."""
        half, server = Curve25519Half(), X25519PrivateKey.generate()
        secret = server.exchange(X25519PublicKey.from_public_bytes(half.public))
        self.assertEqual(
            half.agree(server.public_key().public_bytes_raw()), MP(int.from_bytes(secret, "big"))
        )

    def test_hybrid(self) -> None:
        """Both sides have the same secret: a string, the hash of both secrets."""
        half, server = HybridHalf(), X25519PrivateKey.generate()
        self.assertEqual(len(half.public), 1184 + 32)
        quantum, sealed = MLKEM768PublicKey.from_public_bytes(half.public[:1184]).encapsulate()
        secret = server.exchange(X25519PublicKey.from_public_bytes(half.public[1184:]))
        reply = sealed + server.public_key().public_bytes_raw()
        self.assertEqual(half.agree(reply), NS(sha256(quantum + secret).digest()))

    def test_no_secret(self) -> None:
        """A short value, a long one, and a curve point that makes the secret zero are refused."""
        for reply in (b"", b"x" * 31, b"x" * 33, bytes(32)):
            with self.assertRaises(Malformed):
                Curve25519Half().agree(reply)
        for reply in (b"", b"x" * 32, b"x" * 1119, b"x" * 1121, b"x" * 1088 + bytes(32)):
            with self.assertRaises(Malformed):
                HybridHalf().agree(reply)

    def test_which(self) -> None:
        """Each exchange has its half."""
        self.assertIsInstance(client_half(b"mlkem768x25519-sha256"), HybridHalf)
        self.assertIsInstance(client_half(b"curve25519-sha256@libssh.org"), Curve25519Half)


class NewKeysTests(SynchronousTestCase):
    """NewKeys."""

    def test_both_ends(self) -> None:
        """Packets sealed by one end are opened by the other, in both directions, each with its own cipher."""
        for there in CIPHERS:
            for back in CIPHERS:
                client = NewKeys(
                    SSHCiphers(there, back, b"", b""), b"secret", b"hash", b"session", is_client=True
                )
                server = NewKeys(
                    SSHCiphers(back, there, b"", b""), b"secret", b"hash", b"session", is_client=False
                )
                for one, other in ((client, server), (server, client)):
                    sealer, opener = one.sealer(7), other.opener(7, LONGEST_PACKET)
                    for payload in (b"first", b"second"):
                        self.assertEqual(opener.open(sealer.seal(payload)), payload)
                    self.assertEqual((sealer.sequence, opener.sequence, opener.limit), (9, 9, LONGEST_PACKET))


class DerivedTests(SynchronousTestCase):
    """derived."""

    @given(st.binary(max_size=80), st.binary(min_size=32, max_size=32), st.integers(0, 64))
    def test_as_conch(self, secret: bytes, digest: bytes, size: int) -> None:
        """Keys and IVs are those that Conch derives, in every exchange that we offer."""
        conch = SSHTransportBase()
        conch.sessionID = b"session"
        for conch.kexAlg in EXCHANGES:
            for letter in (b"A", b"B", b"C", b"D"):
                expected = conch._getKey(letter, secret, digest)[:size]
                self.assertEqual(derived(letter, size, secret, digest, b"session"), expected)
