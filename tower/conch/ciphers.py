"""The AEAD ciphers that OpenSSH defined for SSH packets.  No I/O.

``aes128-gcm@openssh.com`` and ``aes256-gcm@openssh.com`` (RFC 5647 as in OpenSSH's PROTOCOL section 1.6) and
``chacha20-poly1305@openssh.com`` (PROTOCOL.chacha20poly1305).  Padding is zeros: it is encrypted and
authenticated like the rest, and hides no length that the length field does not show.
"""

from __future__ import annotations

from hmac import compare_digest
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305

from tower.conch.packets import (
    LONGEST_PACKET,
    BadPacket,
    Counted,
    Opener,
    PacketTooLong,
    Sealer,
    padding_for,
    payload_end,
)
from tower.pipes import Buffer

#: What we offer, the preferred one first.
CIPHERS = (b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com", b"chacha20-poly1305@openssh.com")

#: Bytes of key and of IV that the key exchange must derive for each cipher.
KEY_SIZES = {CIPHERS[0]: (16, 12), CIPHERS[1]: (32, 12), CIPHERS[2]: (64, 0)}

TAG = 16
_ZEROS = bytes(32)
_LENGTH = Struct(">I")


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


class _Invocations(Counted):
    """Counts packets, and makes the nonce of each.

    :param iv: 12 bytes; read as one number it grows by one a packet (RFC 5647 section 7.1).
    """

    def __init__(self, iv: bytes, sequence: int) -> None:
        super().__init__(sequence)
        self._fixed = iv[:4]
        self._invocation = int.from_bytes(iv[4:12], "big")

    def _next(self, size: int) -> bytes:
        """Count a packet of *size* and return its nonce; one call, because it is made for every packet."""
        invocation = self._invocation
        self._invocation = invocation + 1 & 0xFFFFFFFFFFFFFFFF
        self.sequence = self.sequence + 1 & 0xFFFFFFFF
        self.packets += 1
        self.octets += size
        return self._fixed + invocation.to_bytes(8, "big")


class GCMSealer(_Invocations):
    """AES-GCM; the length field is authenticated but not encrypted."""

    def __init__(self, key: bytes, iv: bytes, sequence: int = 0) -> None:
        super().__init__(iv, sequence)
        aead = AESGCM(key)
        self._encrypt = aead.encrypt
        self._encrypt_into = aead.encrypt_into

    def seal(self, payload: bytes) -> bytes:
        """See `Sealer.seal`."""
        size = 1 + len(payload)
        pad = padding_for(size, 16)
        length = _LENGTH.pack(size + pad)
        return length + self._encrypt(self._next(size), b"%c%b%b" % (pad, payload, _ZEROS[:pad]), length)

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `Sealer.seal_into`."""
        pad = padding_for(size, 16)
        end = size + pad
        plain[0] = pad
        plain[size:end] = _ZEROS[:pad]
        out[:4] = length = _LENGTH.pack(end)
        end += 4 + TAG
        self._encrypt_into(self._next(size), plain[: size + pad], length, out[4:end])
        return end


class GCMOpener(_Invocations):
    """The opener for `GCMSealer`."""

    def __init__(self, key: bytes, iv: bytes, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(iv, sequence)
        self.limit = limit
        aead = AESGCM(key)
        self._decrypt = aead.decrypt
        self._decrypt_into = aead.decrypt_into

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `Opener.wire_length`."""
        (length,) = _LENGTH.unpack_from(buffer, offset)
        if length > self.limit or length & 15 or not length:
            _checked_length(length, 16, self.limit)  # which raises
        return 4 + TAG + int(length)

    def open(self, wire: Buffer) -> bytes:
        """See `Opener.open`."""
        try:
            plain = self._decrypt(self._next(len(wire)), bytes(wire[4:]), bytes(wire[:4]))
        except InvalidTag:
            raise BadPacket("a packet is not authentic") from None
        return plain[1 : payload_end(plain[0], len(plain))]

    def open_into(self, wire: memoryview, plain: memoryview) -> int:
        """See `Opener.open_into`."""
        size = len(wire) - 4 - TAG
        try:
            self._decrypt_into(self._next(size), wire[4:], wire[:4], plain[:size])
        except InvalidTag:
            raise BadPacket("a packet is not authentic") from None
        return payload_end(plain[0], size)


class _ChaCha:
    """The two ChaCha20 keys of one direction: one for lengths, one for content and the tag's key."""

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

    def __init__(self, key: bytes, sequence: int = 0) -> None:
        super().__init__(sequence)
        self._keys = _ChaCha(key)

    def seal(self, payload: bytes) -> bytes:
        """See `Sealer.seal`."""
        size = 1 + len(payload)
        pad = padding_for(size, 8)
        return self._seal(b"%c%b%b" % (pad, payload, _ZEROS[:pad]))

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `Sealer.seal_into`."""
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


class ChaChaOpener(Counted):
    """The opener for `ChaChaSealer`; the tag is checked before anything is decrypted but the length."""

    def __init__(self, key: bytes, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(sequence)
        self.limit = limit
        self._keys = _ChaCha(key)

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `Opener.wire_length`."""
        field = self._keys.length(self.sequence, bytes(buffer[offset : offset + 4]))
        return 4 + TAG + _checked_length(_LENGTH.unpack(field)[0], 8, self.limit)

    def open(self, wire: Buffer) -> bytes:
        """See `Opener.open`."""
        with memoryview(wire) as view:
            tag_key, plain = self._keys.content(self.sequence, view[4:-TAG])
            expected = Poly1305.generate_tag(tag_key, bytes(view[:-TAG]))
            if not compare_digest(expected, view[-TAG:]):
                raise BadPacket("a packet is not authentic")
        end = payload_end(plain[0], len(plain))
        self._count(end)
        return plain[1:end]

    def open_into(self, wire: memoryview, plain: memoryview) -> int:
        """See `Opener.open_into`."""
        payload = self.open(wire)
        end = 1 + len(payload)
        plain[1:end] = payload
        return end
