"""SSH binary packets (RFC 4253 section 6): formats, and the packets before the first keys.  No I/O.

One sealer makes the packets of one direction and one opener parses them; a key exchange replaces both.
Each has two interfaces:

* `ClearSealer.seal` and `CopyingOpener.open` take and return ``bytes``, for small or rare packets;
* `ClearSealer.seal_into` and `CopyingOpener.open_next` work in the caller's buffers, for channel data.  A
  packet of 128 KiB or more made by concatenation costs an ``mmap`` and its page faults each time, most of the
  time of a slow tunnel.

`tower.conch.transport.ciphers` has the encrypted packets.
"""

from __future__ import annotations

import secrets
from struct import Struct
from typing import Final

from tower.errors import PeerError
from tower.net.pipes import Buffer

#: Longest packet accepted, without its length field and tag, B; ours stay below 256 KiB.
LONGEST_PACKET: Final = 256 * 1024 + 1024

#: Most bytes that a sealed packet adds to its payload: length 4, padding length 1, padding 19, tag 16.
OVERHEAD: Final = 40

_LENGTH: Final = Struct(">I")


class PacketTooLong(PeerError):
    """The peer announced a packet over the limit; rejected by its length field, before it is received."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"packet of {size} B exceeds the limit of {limit} B")
        self.size, self.limit = size, limit


class BadPacket(PeerError):
    """A packet that is not authentic, or has inconsistent fields."""


def padding_for(size: int, block: int) -> int:
    """Return the length of the padding of *size* bytes: at least 4, up to a multiple of *block*."""
    pad = block - size % block
    return pad if pad >= 4 else pad + block


def payload_end(padding: int, size: int) -> int:
    """Return the end of the payload in *size* bytes of plain text; it has at least its type."""
    if padding < 4 or padding + 2 > size:
        raise BadPacket(f"{padding} B of padding in a packet of {size} B")
    return size - padding


class Counted:
    """Counters of the packets of one direction.

    :ivar sequence: number of the next packet, modulo 2**32.
    :ivar octets: bytes sealed or opened with this key: at least 8 for each packet, so a limit of bytes limits
        packets too.
    """

    __slots__ = ("octets", "packets", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.packets = 0
        self.octets = 0

    def release_cipher(self) -> None:
        """Free the cipher of an idle connection; the next use makes it again.  Here there is only a key."""

    def _count(self, size: int) -> None:
        self.sequence = self.sequence + 1 & 0xFFFFFFFF
        self.packets += 1
        self.octets += size


class CopyingOpener(Counted):
    """Parses the packets of one direction; `open_next` calls `open`, for packets that need not be fast.

    :ivar limit: longest packet accepted, B.
    """

    __slots__ = ("limit",)

    def __init__(self, sequence: int = 0, limit: int = LONGEST_PACKET) -> None:
        super().__init__(sequence)
        self.limit = limit

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """Return the length of the packet at *offset*; at least 4 bytes of it must be received.

        :raise PacketTooLong: its length field exceeds `limit`.
        :raise BadPacket: its length field is invalid.
        """
        raise NotImplementedError

    def open(self, wire: Buffer) -> bytes:
        """Return the payload of one whole packet.

        :raise BadPacket: it is not authentic.
        """
        raise NotImplementedError

    def open_next(
        self, buffer: memoryview, begin: int, end: int, plain: memoryview
    ) -> tuple[int, int] | None:
        """Decrypt the packet at the beginning of ``buffer[begin:end]`` into *plain*; None: it is incomplete.

        :return: offset of the next packet in *buffer*, and *until*: the payload is ``plain[1:until]``.
        :raise PacketTooLong: as `wire_length`.
        :raise BadPacket: as `wire_length` and `open`.
        """
        if end - begin < 4:
            return None
        after = begin + self.wire_length(buffer, begin)
        if end < after:
            return None
        payload = self.open(buffer[begin:after])
        until = 1 + len(payload)
        plain[1:until] = payload
        return after, until


class ClearSealer(Counted):
    """Packets before the first keys: neither encrypted nor authenticated."""

    __slots__ = ()

    def seal(self, payload: bytes) -> bytes:
        """Return the packet for *payload*, which begins with the message type."""
        pad = padding_for(5 + len(payload), 8)
        self._count(len(payload))
        head = _LENGTH.pack(1 + len(payload) + pad) + bytes((pad,))
        return head + payload + secrets.token_bytes(pad)

    def seal_into(self, plain: memoryview, size: int, out: memoryview) -> int:
        """Seal ``plain[1:size]`` into *out* and return the length of the packet.

        The caller leaves ``plain[0]`` free for the padding length, and 32 bytes after *size* for padding.
        """
        wire = self.seal(bytes(plain[1:size]))
        out[: len(wire)] = wire
        return len(wire)


class ClearOpener(CopyingOpener):
    """The opener for `ClearSealer`."""

    __slots__ = ()

    def wire_length(self, buffer: Buffer, offset: int) -> int:
        """See `CopyingOpener.wire_length`."""
        (length,) = _LENGTH.unpack_from(buffer, offset)
        if length > self.limit:
            raise PacketTooLong(length, self.limit)
        if length < 12 or (length + 4) % 8:
            raise BadPacket(f"packet length {length} does not fill blocks of 8")
        return 4 + int(length)

    def open(self, wire: Buffer) -> bytes:
        """See `CopyingOpener.open`."""
        end = payload_end(wire[4], len(wire) - 4)
        self._count(end - 1)
        return bytes(wire[5 : 4 + end])
