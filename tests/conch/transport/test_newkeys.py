"""Tests of `tower.conch.transport.newkeys`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.conch.ssh.transport import SSHCiphers, SSHTransportBase
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.transport.ciphers import CIPHERS
from tower.conch.transport.kex import EXCHANGES
from tower.conch.transport.newkeys import NewKeys, derived
from tower.conch.transport.packets import LONGEST_PACKET


class NewKeysTests(SynchronousTestCase):
    """NewKeys."""

    def test_both_ends(self) -> None:
        """What one end seals the other opens, in both directions, each with a cipher of its own."""
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
