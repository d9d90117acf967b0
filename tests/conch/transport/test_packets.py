"""Tests of `tower.conch.transport.packets` and `ciphers`, against the specifications written out."""

from __future__ import annotations

import random

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES, ChaCha20
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.poly1305 import Poly1305
from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.conch.connection.messages import LONGEST_DATA
from tower.conch.transport.ciphers import CIPHERS, KEY_SIZES, Opener, Sealer, make_opener, make_sealer
from tower.conch.transport.packets import (
    LONGEST_PACKET,
    OVERHEAD,
    BadPacket,
    ClearOpener,
    ClearSealer,
    PacketTooLong,
)
from tower.errors import PeerError

KEY = bytes(range(64))
IV = bytes(range(100, 112))
BULK = random.Random(5).randbytes(LONGEST_PACKET)
GCMS, CHACHA = CIPHERS[:2], CIPHERS[2]


def reference(cipher: bytes, packet: bytes, number: int) -> bytes:
    """Seal *packet*, length field to padding, as packet *number*, straight after the specification."""
    length, content = packet[:4], packet[4:]
    if cipher == CHACHA:  # PROTOCOL.chacha20poly1305
        nonce = number.to_bytes(8, "big")

        def stream(key: bytes, counter: int, text: bytes) -> bytes:
            block = counter.to_bytes(8, "little") + nonce
            return Cipher(ChaCha20(key, block), None).encryptor().update(text)

        sealed = stream(KEY[32:], 0, length) + stream(KEY[:32], 1, content)
        return sealed + Poly1305.generate_tag(stream(KEY[:32], 0, bytes(32)), sealed)
    # RFC 5647 section 7.1: four fixed bytes and a counter that the first packet finds in the IV
    nonce = IV[:4] + ((int.from_bytes(IV[4:], "big") + number) % 2**64).to_bytes(8, "big")
    encryptor = Cipher(AES(KEY[: KEY_SIZES[cipher][0]]), GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(length)
    return length + encryptor.update(content) + encryptor.finalize() + encryptor.tag


def padded(payload: bytes, block: int, covered: int) -> bytes:
    """Return the packet for *payload* with the least padding, which RFC 4253 wants to be 4 or more."""
    pad = 4
    while (covered + 1 + len(payload) + pad) % block:
        pad += 1
    return (1 + len(payload) + pad).to_bytes(4, "big") + bytes((pad,)) + payload + bytes(pad)


def ends(cipher: bytes, sequence: int = 0, limit: int = LONGEST_PACKET) -> tuple[Sealer, Opener]:
    """Return a sealer and the opener for it."""
    return make_sealer(cipher, KEY, IV, sequence), make_opener(cipher, KEY, IV, sequence, limit)


def seal_into(sealer: Sealer, payload: bytes) -> bytes:
    """Seal with the caller's buffers."""
    size = 1 + len(payload)
    plain, out = bytearray(size + 32), bytearray(b"?" * (size + OVERHEAD))
    plain[1:size] = payload
    return bytes(out[: sealer.seal_into(memoryview(plain), size, memoryview(out))])


def open_whole(opener: Opener, wire: bytes) -> bytes:
    """Open as bytes."""
    return opener.open(wire)


def open_into(opener: Opener, wire: bytes) -> bytes:
    """Open with the caller's buffers."""
    plain = bytearray(b"?" * (len(wire) + 10))
    around = bytearray(b"?" * 3 + wire + b"?")
    opened = opener.open_next(memoryview(around), 3, 3 + len(wire), memoryview(plain))
    assert opened is not None
    assert opened[0] == 3 + len(wire)
    return bytes(plain[1 : opened[1]])


class PartTests(SynchronousTestCase):
    """Packets that are not all there."""

    def test_parts(self) -> None:
        """Nothing is opened, or counted, before the last byte came."""
        for cipher in (*CIPHERS, None):
            opener = ClearOpener() if cipher is None else make_opener(cipher, KEY, IV)
            sealer = ClearSealer(0) if cipher is None else make_sealer(cipher, KEY, IV)
            wire = memoryview(bytearray(sealer.seal(b"\x5epayload")))
            plain = memoryview(bytearray(100))
            for size in range(len(wire)):
                self.assertIsNone(opener.open_next(wire, 0, size, plain))
            self.assertEqual(opener.packets, 0)
            self.assertEqual(opener.open_next(wire, 0, len(wire), plain), (len(wire), 9))
            self.assertEqual((bytes(plain[1:9]), opener.packets), (b"\x5epayload", 1))


class ReferenceTests(SynchronousTestCase):
    """Conforms to the specifications."""

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(CIPHERS), st.lists(st.integers(1, 600), min_size=1, max_size=5), st.booleans())
    @example(CIPHERS[0], [LONGEST_DATA + 9], True)
    @example(CIPHERS[2], [LONGEST_DATA + 9], True)
    def test_both_ways(self, cipher: bytes, sizes: list[int], in_place: bool) -> None:
        """Packets are those of the reference, and opened again; numbers and counters go on."""
        sealer, opener = ends(cipher)
        block = 8 if cipher == CHACHA else 16
        for number, size in enumerate(sizes):
            payload = BULK[:size]
            wire = seal_into(sealer, payload) if in_place else sealer.seal(payload)
            self.assertEqual(wire, reference(cipher, padded(payload, block, 0), number))
            self.assertEqual(opener.wire_length(b"xyz" + wire, 3), len(wire))
            self.assertEqual(open_into(opener, wire) if in_place else opener.open(wire), payload)
        for end in (sealer, opener):
            self.assertEqual((end.sequence, end.packets), (len(sizes), len(sizes)))
            self.assertGreater(end.octets, sum(sizes))

    def test_padding_of_others(self) -> None:
        """More padding than needed, and random, is fine (RFC 4253 allows up to 255)."""
        for cipher in CIPHERS:
            opener = make_opener(cipher, KEY, IV)
            for number, pad in enumerate((4, 20, 36, 244)):
                packet = (1 + 11 + pad).to_bytes(4, "big") + bytes((pad,)) + b"hello world" + BULK[:pad]
                self.assertEqual(opener.open(reference(cipher, packet, number)), b"hello world")

    def test_sequence_wraps(self) -> None:
        """After 2**32 - 1 comes 0."""
        for cipher in CIPHERS:
            sealer, opener = ends(cipher, 2**32 - 1)
            for payload in (b"last", b"first"):
                self.assertEqual(opener.open(sealer.seal(payload)), payload)
            self.assertEqual((sealer.sequence, opener.sequence), (1, 1))

    def test_counter_wraps(self) -> None:
        """GCM's counter is a number of 64 bits; the fixed four bytes are not part of it."""
        for cipher in GCMS:
            iv = b"\1\2\3\4" + b"\xff" * 8
            sealer, opener = make_sealer(cipher, KEY, iv), make_opener(cipher, KEY, iv)
            for payload in (b"last", b"first"):
                self.assertEqual(opener.open(sealer.seal(payload)), payload)
            wire = sealer.seal(b"third")
            nonce = b"\1\2\3\4" + (1).to_bytes(8, "big")
            plain = AESGCM(KEY[: KEY_SIZES[cipher][0]]).decrypt(nonce, wire[4:], wire[:4])
            self.assertEqual(plain[1:6], b"third")
            self.assertEqual((sealer.packets, sealer.sequence, opener.sequence), (3, 3, 2))

    def test_longest(self) -> None:
        """The longest packets of ours stay within the limit and within the stated overhead."""
        for cipher in CIPHERS:
            sealer, opener = ends(cipher)
            for size in range(LONGEST_DATA - 8, LONGEST_DATA + 10):
                wire = seal_into(sealer, BULK[:size])
                self.assertLessEqual(len(wire), size + OVERHEAD)
                self.assertEqual(opener.wire_length(wire, 0), len(wire))
                self.assertTrue(open_into(opener, wire) == BULK[:size])


class HostileTests(SynchronousTestCase):
    """Refuses what is not authentic or makes no sense."""

    @settings(max_examples=80, deadline=None)
    @given(st.sampled_from(CIPHERS), st.integers(1, 100), st.data(), st.booleans())
    def test_any_bit(self, cipher: bytes, size: int, data: st.DataObject, in_place: bool) -> None:
        """Any bit that is changed is noticed, at the latest by the tag."""
        sealer, opener = ends(cipher)
        wire = bytearray(sealer.seal(BULK[:size]))
        position = data.draw(st.integers(0, len(wire) - 1))
        wire[position] ^= 1 << data.draw(st.integers(0, 7))
        with self.assertRaises(PeerError):
            if opener.wire_length(wire, 0) != len(wire):
                raise BadPacket("it would wait for more, or cut it")
            open_into(opener, bytes(wire)) if in_place else opener.open(bytes(wire))

    def test_replayed(self) -> None:
        """A packet is valid only at its position."""
        for cipher in CIPHERS:
            sealer, opener = ends(cipher)
            first, second = sealer.seal(b"first"), sealer.seal(b"second")
            for wires in ((first, first), (second,), (first, second, second)):
                opener = make_opener(cipher, KEY, IV)
                with self.assertRaises(BadPacket):
                    for wire in wires:
                        opener.open(wire)

    def test_lengths(self) -> None:
        """A length over the limit, or one that does not fit the cipher, is refused before it is awaited."""
        for cipher in CIPHERS:
            block = 8 if cipher == CHACHA else 16
            for length, error in (
                (LONGEST_PACKET + block, PacketTooLong),
                (0xFFFFFFF0, PacketTooLong),
                (0xFFFFFFFF, PacketTooLong),
                (0, BadPacket),
                (block - 1, BadPacket),
                (block + 1, BadPacket),
                (block * 3 + 4, BadPacket),
            ):
                opener = make_opener(cipher, KEY, IV)
                wire = reference(cipher, length.to_bytes(4, "big"), 0)
                self.assertRaises(error, opener.wire_length, wire, 0)

    def test_limit(self) -> None:
        """The limit counts padding and what is in between, not the length field and the tag."""
        for cipher in CIPHERS:
            sealer, opener = ends(cipher, limit=64)
            self.assertEqual(opener.wire_length(sealer.seal(bytes(59)), 0), 84)
            opener.limit = 48
            wire = make_sealer(cipher, KEY, IV).seal(bytes(59))
            error = self.assertRaises(PacketTooLong, opener.wire_length, wire, 0)
            self.assertEqual((error.size, error.limit), (64, 48))

    def test_padding(self) -> None:
        """Authentic nonsense: too little padding, or too much for a message."""
        for cipher in CIPHERS:
            for pad in (0, 3, 15, 16, 255):
                for opened in (open_into, open_whole):
                    opener = make_opener(cipher, KEY, IV)
                    wire = reference(cipher, (16).to_bytes(4, "big") + bytes((pad,)) + bytes(15), 0)
                    with self.assertRaises(BadPacket):
                        opened(opener, wire)


class ClearTests(SynchronousTestCase):
    """Packets before there are keys."""

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 200), st.booleans())
    def test_both_ways(self, size: int, in_place: bool) -> None:
        """RFC 4253 section 6: whole blocks of 8, length field included."""
        sealer, opener = ClearSealer(0), ClearOpener()
        wire = seal_into(sealer, BULK[:size]) if in_place else sealer.seal(BULK[:size])
        expected = padded(BULK[:size], 8, 4)
        self.assertEqual(wire[: 5 + size], expected[: 5 + size])
        self.assertEqual(len(wire), len(expected))
        self.assertEqual(opener.wire_length(wire, 0), len(wire))
        self.assertEqual(open_into(opener, wire) if in_place else opener.open(wire), BULK[:size])
        self.assertEqual((sealer.sequence, opener.sequence, opener.packets), (1, 1, 1))

    def test_lengths(self) -> None:
        """Lengths that make no sense are refused."""
        opener = ClearOpener(limit=1000)
        for length, error in ((0, BadPacket), (4, BadPacket), (13, BadPacket), (1004, PacketTooLong)):
            self.assertRaises(error, opener.wire_length, length.to_bytes(4, "big"), 0)

    def test_padding(self) -> None:
        """Padding that makes no sense is refused."""
        for pad in (0, 3, 11, 255):
            wire = (12).to_bytes(4, "big") + bytes((pad,)) + bytes(11)
            self.assertRaises(BadPacket, ClearOpener().open, wire)
