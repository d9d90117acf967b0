"""The AEAD ciphers that OpenSSH defined for SSH packets.  No I/O.

``aes128-gcm@openssh.com`` and ``aes256-gcm@openssh.com`` (RFC 5647 as in OpenSSH's PROTOCOL section 1.6) and
``chacha20-poly1305@openssh.com`` (PROTOCOL.chacha20poly1305).  Padding is zeros: it is encrypted and
authenticated like the rest, and hides no length that the length field does not show.
"""

from __future__ import annotations

from hmac import compare_digest
from struct import Struct
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305

from tower.conch.transport.packets import (
    LONGEST_PACKET,
    BadPacket,
    ClearOpener,
    ClearSealer,
    CopyingOpener,
    Counted,
    PacketTooLong,
    padding_for,
    payload_end,
)
from tower.net.pipes import Buffer

#: The ciphers that we offer, the preferred one first.
CIPHERS: Final = (b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com", b"chacha20-poly1305@openssh.com")

#: Bytes of key and of IV that the key exchange must derive for each cipher.
KEY_SIZES: Final = {CIPHERS[0]: (16, 12), CIPHERS[1]: (32, 12), CIPHERS[2]: (64, 0)}

TAG: Final = 16
_ZEROS: Final = bytes(32)
_LENGTH: Final = Struct(">I")
_NONCE: Final = Struct(">4sQ")
_WRAP: Final = 2**64 - 1

# Padding length field and padding of a payload, by the size of both modulo 16.
_PADDING: Final = [(bytes((pad,)), bytes(pad)) for pad in (padding_for(size, 16) for size in range(16))]


def make_sealer(cipher: bytes, key: bytes, iv: bytes, sequence: int = 0) -> Sealer:
    """Return the sealer of *cipher*; *key* and *iv* may be longer than needed."""
    if cipher == CIPHERS[2]:
        return ChaChaSealer(key, sequence)
    return GCMSealer(key[: KEY_SIZES[cipher][0]], iv, sequence)


def make_opener(
    cipher: bytes, key: bytes, iv: bytes, sequence: int = 0, limit: int = LONGEST_PACKET
) -> Opener:
    """Return the opener of *cipher*; *key* and *iv* may be longer than needed."""
    if cipher == CIPHERS[2]:
        return ChaChaOpener(key, sequence, limit)
    return GCMOpener(key[: KEY_SIZES[cipher][0]], iv, sequence, limit)


def _checked_length(length: int, block: int, limit: int) -> int:
    if length > limit:
        raise PacketTooLong(length, limit)
    if length < block or length % block:
        raise BadPacket(f"packet length {length} is not a multiple of {block}")
    return length


class _Invocations:
    """The packet counter of one direction, and its cipher.

    One number per packet serves as nonce, sequence number and packet count, because every packet updates it.

    :param iv: 12 bytes; as one number it grows by one a packet (RFC 5647 section 7.1).
    """

    __slots__ = ("_aead", "_first", "_first_sequence", "_fixed", "_invocation", "_key", "octets")

    def __init__(self, key: bytes, iv: bytes, sequence: int = 0) -> None:
        self._key = key
        self._aead: AESGCM | None = None
        self._fixed = iv[:4]
        self._invocation = self._first = int.from_bytes(iv[4:12], "big")
        self._first_sequence = sequence
        self.octets = 0

    @property
    def packets(self) -> int:
        """Packets sealed or opened with this key."""
        return self._invocation - self._first

    @property
    def sequence(self) -> int:
        """Number of the next packet, modulo 2**32."""
        return self._first_sequence + self.packets & 0xFFFFFFFF

    def release_cipher(self) -> None:
        """See `Counted.release_cipher`."""
        self._aead = None

    def _make_cipher(self) -> AESGCM:
        self._aead = aead = AESGCM(self._key)
        return aead


class GCMSealer(_Invocations):
    """AES-GCM; the length field is authenticated but not encrypted."""

    __slots__ = ()

    def seal(self, payload: bytes) -> bytes:
        """See `ClearSealer.seal`."""
        size = 1 + len(payload)
        first, padding = _PADDING[size & 15]
        plain = first + payload + padding
        length = _LENGTH.pack(len(plain))
        invocation = self._invocation
        self._invocation = invocation + 1
        self.octets += len(plain)
        nonce = _NONCE.pack(self._fixed, invocation & _WRAP)
        return length + (self._aead or self._make_cipher()).encrypt(nonce, plain, length)

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `ClearSealer.seal_into`."""
        pad = padding_for(size, 16)
        end = size + pad
        plain[0] = pad
        plain[size:end] = _ZEROS[:pad]
        out[:4] = length = _LENGTH.pack(end)
        invocation = self._invocation
        self._invocation = invocation + 1
        self.octets += end
        nonce = _NONCE.pack(self._fixed, invocation & _WRAP)
        aead = self._aead or self._make_cipher()
        aead.encrypt_into(nonce, plain[:end], length, out[4 : 4 + end + TAG])
        return 4 + end + TAG


class GCMOpener(_Invocations):
    """The opener for `GCMSealer`."""

    __slots__ = ("limit",)

    def __init__(self, key: bytes, iv: bytes, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(key, iv, sequence)
        self.limit = limit

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `CopyingOpener.wire_length`."""
        (length,) = _LENGTH.unpack_from(buffer, offset)
        return 4 + TAG + _checked_length(length, 16, self.limit)

    def open(self, wire: Buffer) -> bytes:
        """See `CopyingOpener.open`."""
        nonce = _NONCE.pack(self._fixed, self._invocation & _WRAP)
        self._invocation += 1
        self.octets += len(wire)
        try:
            plain = (self._aead or self._make_cipher()).decrypt(nonce, bytes(wire[4:]), bytes(wire[:4]))
        except InvalidTag:
            raise BadPacket("a packet is not authentic") from None
        return plain[1 : payload_end(plain[0], len(plain))]

    def open_next(
        self, buffer: memoryview, begin: int, end: int, plain: memoryview
    ) -> tuple[int, int] | None:
        """See `CopyingOpener.open_next`."""
        content = begin + 4
        if end < content:
            return None
        (size,) = _LENGTH.unpack_from(buffer, begin)
        if size > self.limit or size & 15 or not size:
            _checked_length(size, 16, self.limit)  # raises
        after = content + size + TAG
        if end < after:
            return None
        invocation = self._invocation
        self._invocation = invocation + 1
        self.octets += size
        nonce = _NONCE.pack(self._fixed, invocation & _WRAP)
        try:
            aead = self._aead or self._make_cipher()
            aead.decrypt_into(nonce, buffer[content:after], _LENGTH.pack(size), plain[:size])
        except InvalidTag:
            raise BadPacket("a packet is not authentic") from None
        pad = plain[0]
        return after, size - pad if 4 <= pad < size - 1 else payload_end(pad, size)


class _ChaCha:
    """The two ChaCha20 keys of one direction: one for lengths, one for the payload and the tag's key."""

    __slots__ = ("_content", "_lengths")

    def __init__(self, key: bytes) -> None:
        self._content, self._lengths = key[:32], key[32:64]

    def length(self, sequence: int, field: bytes) -> bytes:
        """Encrypt or decrypt a length field."""
        nonce = _ZEROS[:8] + sequence.to_bytes(8, "big")
        return Cipher(ChaCha20(self._lengths, nonce), None).encryptor().update(field)

    def content(self, sequence: int, text: bytes | memoryview) -> tuple[bytes, bytes]:
        """Return the tag's key and *text* encrypted or decrypted (block 0 makes the key)."""
        nonce = _ZEROS[:8] + sequence.to_bytes(8, "big")
        stream = Cipher(ChaCha20(self._content, nonce), None).encryptor()
        return stream.update(_ZEROS + _ZEROS)[:32], stream.update(text)


class ChaChaSealer(Counted):
    """chacha20-poly1305@openssh.com; the nonce is the sequence number, the length field is encrypted."""

    __slots__ = ("_keys",)

    def __init__(self, key: bytes, sequence: int = 0) -> None:
        super().__init__(sequence)
        self._keys = _ChaCha(key)

    def seal(self, payload: bytes) -> bytes:
        """See `ClearSealer.seal`."""
        size = 1 + len(payload)
        pad = padding_for(size, 8)
        return self._seal(b"%c%b%b" % (pad, payload, _ZEROS[:pad]))

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `ClearSealer.seal_into`."""
        pad = padding_for(size, 8)
        plain[0] = pad
        plain[size : size + pad] = _ZEROS[:pad]
        wire = self._seal(plain[: size + pad])
        out[: len(wire)] = wire
        return len(wire)

    def _seal(self, plain: bytes | memoryview) -> bytes:
        head = self._keys.length(self.sequence, _LENGTH.pack(len(plain)))
        tag_key, text = self._keys.content(self.sequence, plain)
        self._count(len(plain))
        body = head + text
        return body + Poly1305.generate_tag(tag_key, body)


class ChaChaOpener(CopyingOpener):
    """The opener for `ChaChaSealer`; it decrypts only the length before it checks the tag."""

    __slots__ = ("_keys",)

    def __init__(self, key: bytes, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(sequence, limit)
        self._keys = _ChaCha(key)

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `CopyingOpener.wire_length`."""
        field = self._keys.length(self.sequence, bytes(buffer[offset : offset + 4]))
        return 4 + TAG + _checked_length(_LENGTH.unpack(field)[0], 8, self.limit)

    def open(self, wire: Buffer) -> bytes:
        """See `CopyingOpener.open`."""
        with memoryview(wire) as view:
            tag_key, plain = self._keys.content(self.sequence, view[4:-TAG])
            expected = Poly1305.generate_tag(tag_key, bytes(view[:-TAG]))
            if not compare_digest(expected, view[-TAG:]):
                raise BadPacket("a packet is not authentic")
        end = payload_end(plain[0], len(plain))
        self._count(len(plain))
        return plain[1:end]


#: Makes the packets of one direction.
Sealer: TypeAlias = ClearSealer | GCMSealer | ChaChaSealer
#: Parses the packets of one direction.
Opener: TypeAlias = ClearOpener | GCMOpener | ChaChaOpener
