"""SSH binary packets (RFC 4253 section 6) under the AEAD ciphers that OpenSSH defined.  No I/O.

One `Sealer` makes the packets of one direction and one `Opener` takes them apart; a key exchange
replaces both.  There are two ways in and out:

* `Sealer.seal` and `Opener.open` take and return ``bytes``: for everything that is small or rare;
* `Sealer.seal_into` and `Opener.open_into` work in the caller's buffers and allocate nothing that grows
  with the packet: for channel data.  A packet of 128 KiB or more made by concatenation costs an ``mmap``
  and its page faults each time, which is most of what a slow tunnel does.

Ciphers: ``aes128-gcm@openssh.com`` and ``aes256-gcm@openssh.com`` (RFC 5647 as in OpenSSH's PROTOCOL
section 1.6) and ``chacha20-poly1305@openssh.com`` (PROTOCOL.chacha20poly1305).  Padding is zeros: it is
encrypted and authenticated like the rest, and hides no length that the length field does not show.
"""

from __future__ import annotations

import secrets
from hmac import compare_digest
from struct import Struct
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.poly1305 import Poly1305

from tower.errors import PeerError
from tower.pipes import Buffer

#: What we offer, the preferred one first.
CIPHERS = (b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com", b"chacha20-poly1305@openssh.com")

#: Bytes of key and of IV that the key exchange must derive for each cipher.
KEY_SIZES = {CIPHERS[0]: (16, 12), CIPHERS[1]: (32, 12), CIPHERS[2]: (64, 0)}

#: Longest packet accepted, counted without its length field and tag, B; ours stay below 256 KiB.
LONGEST_PACKET = 256 * 1024 + 1024

#: What a sealed packet can be longer than its payload: length 4, padding length 1, padding 19, tag 16, B.
OVERHEAD = 40

TAG = 16
_ZEROS = bytes(32)
_LENGTH = Struct(">I")


class PacketTooLong(PeerError):
    """The peer announced a packet over the limit; refused on its length, before it is awaited."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"packet of {size} B exceeds the limit of {limit} B")
        self.size, self.limit = size, limit


class BadPacket(PeerError):
    """A packet that is not authentic, or whose fields contradict each other."""


class Sealer(Protocol):
    """Makes the packets of one direction.

    :ivar sequence: number of the next packet, modulo 2**32.
    :ivar packets: packets sealed with this key.
    :ivar octets: payload bytes sealed with this key.
    """

    sequence: int
    packets: int
    octets: int

    def seal(self, payload: bytes) -> bytes:
        """Return the packet on the wire for *payload*, which begins with the message type."""

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """Seal ``plain[1:size]`` into *out* and return the length of the packet there.

        The caller leaves ``plain[0]`` free for the padding length and 32 bytes behind *size* for padding.
        """


class Opener(Protocol):
    """Takes the packets of one direction apart; the fields are those of `Sealer`.

    :ivar limit: longest packet accepted, B.
    """

    sequence: int
    packets: int
    octets: int
    limit: int

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """Return how long the packet at *offset* is on the wire, of which at least 4 bytes must be there.

        :raise PacketTooLong: its length field exceeds `limit`.
        :raise BadPacket: its length field cannot be right.
        """

    def open(self, wire: Buffer) -> bytes:
        """Return the payload of one whole packet.

        :raise BadPacket: it is not authentic.
        """

    def open_into(self, wire: memoryview, plain: memoryview) -> int:
        """Decrypt one whole packet into *plain* and return *end*: the payload is ``plain[1:end]``.

        :raise BadPacket: it is not authentic.
        """


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


def _padding(size: int, block: int) -> int:
    """Return how much padding follows *size* bytes: at least 4, up to a multiple of *block*."""
    pad = block - size % block
    return pad if pad >= 4 else pad + block


def _checked_length(length: int, block: int, limit: int) -> int:
    if length > limit:
        raise PacketTooLong(length, limit)
    if length < block or length % block:
        raise BadPacket(f"packet length {length} is not a multiple of {block}")
    return length


def _payload_end(padding: int, size: int) -> int:
    """Return where the payload ends in *size* bytes of plain text; there is at least its type."""
    if padding < 4 or padding + 2 > size:
        raise BadPacket(f"{padding} B of padding in a packet of {size} B")
    return size - padding


class _Counted:
    """What every sealer and opener counts."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.packets = 0
        self.octets = 0

    def _count(self, size: int) -> None:
        self.sequence = self.sequence + 1 & 0xFFFFFFFF
        self.packets += 1
        self.octets += size


class ClearSealer(_Counted):
    """Before the first key exchange is over: no secrecy, no authentication."""

    def seal(self, payload: bytes) -> bytes:
        """See `Sealer.seal`."""
        pad = _padding(5 + len(payload), 8)
        self._count(len(payload))
        head = _LENGTH.pack(1 + len(payload) + pad) + bytes((pad,))
        return head + payload + secrets.token_bytes(pad)

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `Sealer.seal_into`."""
        wire = self.seal(bytes(plain[1:size]))
        out[: len(wire)] = wire
        return len(wire)


class ClearOpener(_Counted):
    """The opener for `ClearSealer`."""

    def __init__(self, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(sequence)
        self.limit = limit

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `Opener.wire_length`."""
        (length,) = _LENGTH.unpack_from(buffer, offset)
        if length > self.limit:
            raise PacketTooLong(length, self.limit)
        if length < 12 or (length + 4) % 8:
            raise BadPacket(f"packet length {length} does not fill blocks of 8")
        return 4 + int(length)

    def open(self, wire: Buffer) -> bytes:
        """See `Opener.open`."""
        end = _payload_end(wire[4], len(wire) - 4)
        self._count(end - 1)
        return bytes(wire[5 : 4 + end])

    def open_into(self, wire: memoryview, plain: memoryview) -> int:
        """See `Opener.open_into`."""
        payload = self.open(wire)
        plain[1 : 1 + len(payload)] = payload
        return 1 + len(payload)


class GCMSealer(_Counted):
    """AES-GCM; the length field is authenticated but not encrypted.

    :param iv: 12 bytes; read as one number it grows by one a packet (RFC 5647 section 7.1).
    """

    def __init__(self, key: bytes, iv: bytes, sequence: int = 0) -> None:
        super().__init__(sequence)
        self._fixed = iv[:4]
        self._invocation = int.from_bytes(iv[4:12], "big")
        aead = AESGCM(key)
        self._encrypt = aead.encrypt
        self._encrypt_into = aead.encrypt_into

    def _nonce(self) -> bytes:
        nonce = self._fixed + self._invocation.to_bytes(8, "big")
        self._invocation = self._invocation + 1 & 0xFFFFFFFFFFFFFFFF
        return nonce

    def seal(self, payload: bytes) -> bytes:
        """See `Sealer.seal`."""
        size = 1 + len(payload)
        pad = _padding(size, 16)
        self._count(size)
        length = _LENGTH.pack(size + pad)
        return length + self._encrypt(self._nonce(), b"%c%b%b" % (pad, payload, _ZEROS[:pad]), length)

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `Sealer.seal_into`."""
        pad = _padding(size, 16)
        self._count(size)
        end = size + pad
        plain[0] = pad
        plain[size:end] = _ZEROS[:pad]
        out[:4] = length = _LENGTH.pack(end)
        end += 4 + TAG
        self._encrypt_into(self._nonce(), plain[: size + pad], length, out[4:end])
        return end


class GCMOpener(_Counted):
    """The opener for `GCMSealer`."""

    def __init__(self, key: bytes, iv: bytes, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(sequence)
        self.limit = limit
        self._fixed = iv[:4]
        self._invocation = int.from_bytes(iv[4:12], "big")
        aead = AESGCM(key)
        self._decrypt = aead.decrypt
        self._decrypt_into = aead.decrypt_into

    def _nonce(self) -> bytes:
        nonce = self._fixed + self._invocation.to_bytes(8, "big")
        self._invocation = self._invocation + 1 & 0xFFFFFFFFFFFFFFFF
        return nonce

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `Opener.wire_length`."""
        (length,) = _LENGTH.unpack_from(buffer, offset)
        if length > self.limit or length & 15 or not length:
            _checked_length(length, 16, self.limit)
            raise BadPacket("a packet without content")
        return 4 + TAG + int(length)

    def open(self, wire: Buffer) -> bytes:
        """See `Opener.open`."""
        try:
            plain = self._decrypt(self._nonce(), bytes(wire[4:]), bytes(wire[:4]))
        except InvalidTag:
            raise BadPacket("a packet is not authentic") from None
        end = _payload_end(plain[0], len(plain))
        self._count(end)
        return plain[1:end]

    def open_into(self, wire: memoryview, plain: memoryview) -> int:
        """See `Opener.open_into`."""
        size = len(wire) - 4 - TAG
        try:
            self._decrypt_into(self._nonce(), wire[4:], wire[:4], plain[:size])
        except InvalidTag:
            raise BadPacket("a packet is not authentic") from None
        end = _payload_end(plain[0], size)
        self._count(end)
        return end


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


class ChaChaSealer(_Counted):
    """chacha20-poly1305@openssh.com; the nonce is the sequence number, the length field is encrypted."""

    def __init__(self, key: bytes, sequence: int = 0) -> None:
        super().__init__(sequence)
        self._keys = _ChaCha(key)

    def seal(self, payload: bytes) -> bytes:
        """See `Sealer.seal`."""
        size = 1 + len(payload)
        pad = _padding(size, 8)
        return self._seal(b"%c%b%b" % (pad, payload, _ZEROS[:pad]))

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """See `Sealer.seal_into`."""
        pad = _padding(size, 8)
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


class ChaChaOpener(_Counted):
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
        end = _payload_end(plain[0], len(plain))
        self._count(end)
        return plain[1:end]

    def open_into(self, wire: memoryview, plain: memoryview) -> int:
        """See `Opener.open_into`."""
        payload = self.open(wire)
        end = 1 + len(payload)
        plain[1:end] = payload
        return end
