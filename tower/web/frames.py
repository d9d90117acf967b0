"""WebSocket frames (RFC 6455 section 5) after Autobahn's handshake.  No I/O.

Written for speed: payload is unmasked and masked where it lies, never copied, and a frame's header is put
into the room left before it.  Message borders mean nothing to a tunnel (a peer may cut its messages into
any frames), so payload is handed on as it comes, before its frame is complete.

Masks are random and real: intermediaries may insist on them.  They protect no secret here, since what they
cover is encrypted, so a generator of the process is good enough.
"""

from __future__ import annotations

import random
from struct import Struct
from typing import NamedTuple

from tower.errors import PeerError
from tower.pipes import Buffer

try:  # Autobahn's SIMD code; a module of its own that Autobahn does not promise to keep
    from _nvx_xormasker import ffi, lib
except ImportError:
    ffi = lib = None

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

#: Longest header that `FrameWriter` makes; leave so much room before the payload, B.
LONGEST_HEADER = 14

_KEY = Struct("<I")
_SHORT = Struct(">BBH")

#: From this size on the C code is faster than one operation on a big integer, B.
_SMALL = 512


class BadFrame(PeerError):
    """The peer broke RFC 6455."""


class NoFrames:
    """Stands in for `FrameReader` and `FrameWriter` where SSH runs on a bare connection."""

    def feed(self, data: memoryview) -> list[tuple[int, int] | Control]:
        """Everything is payload."""
        return [(0, len(data))]

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Nothing is added."""
        return start

    def wrap(self, payload: bytes, opcode: int = BINARY) -> bytes:
        """Nothing is added; there are no control frames."""
        return payload if opcode == BINARY else b""


class Control(NamedTuple):
    """A control frame: `CLOSE`, `PING` or `PONG` and its at most 125 bytes."""

    opcode: int
    payload: bytes


def mask(data: memoryview, key: int) -> None:
    """XOR *data* in place with the 4 bytes of *key*, the first of which is its lowest."""
    size = len(data)
    if size > _SMALL and lib is not None:
        masker = lib.nvx_xormask_new(key.to_bytes(4, "little"))
        lib.nvx_xormask_process(masker, ffi.from_buffer("uint8_t[]", data), size)
        lib.nvx_xormask_free(masker)
        return
    data[:] = _mixed(data, size, key)


def _mixed(data: Buffer, size: int, key: int) -> bytes:
    """Do the same as one operation on two big integers, and return the result."""
    pattern = (key.to_bytes(4, "little") * ((size + 3) >> 2))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")


def _rotated(key: int, count: int) -> int:
    """Return the mask for bytes that begin *count* bytes into what *key* covers."""
    shift = (count & 3) * 8
    return (key >> shift | key << (32 - shift)) & 0xFFFFFFFF if shift else key


class FrameReader:
    """Takes frames apart.

    :param from_client: whether frames must be masked (they come from a client) or must not be.
    """

    __slots__ = (
        "_control",
        "_control_payload",
        "_head",
        "_in_message",
        "_key",
        "_left",
        "_mask_bit",
        "_masked",
    )

    def __init__(self, *, from_client: bool) -> None:
        self._masked = from_client
        self._mask_bit = 128 if from_client else 0
        self._head = b""
        self._left = 0
        self._key = 0
        self._control: int | None = None
        self._control_payload = b""
        self._in_message = False

    def feed(self, data: memoryview) -> list[tuple[int, int] | Control]:
        """Return where in *data* there is payload, unmasked in place, and the control frames between.

        Payload is given as (begin, end).

        :raise BadFrame: this is not what RFC 6455 allows.
        """
        found: list[tuple[int, int] | Control] = []
        position, end = 0, len(data)
        while position < end:
            if not self._left:
                position = self._read_head(data, position)
                if self._head:
                    break
                if not self._left:
                    if self._control is not None:
                        self._finish_control(found)
                    continue
            size = min(self._left, end - position)
            until = position + size
            if self._masked:
                mask(data[position:until], self._key)
                if size < self._left:
                    self._key = _rotated(self._key, size)
            self._left -= size
            if self._control is None:
                found.append((position, until))
            else:
                self._control_payload += bytes(data[position:until])
                if not self._left:
                    self._finish_control(found)
            position = until
        return found

    def _finish_control(self, found: list[tuple[int, int] | Control]) -> None:
        assert self._control is not None
        found.append(Control(self._control, self._control_payload))
        self._control, self._control_payload = None, b""

    def _read_head(self, data: memoryview, position: int) -> int:
        """Read the next frame's header; keep what is there in ``_head`` if it is not whole.

        Nearly every frame is a whole binary message of less than 64 KiB, so those are looked at first.
        """
        if self._head or self._in_message or len(data) - position < LONGEST_HEADER:
            return self._read_any_head(data, position)
        length = data[position + 1] ^ self._mask_bit
        if data[position] != 128 | BINARY or length > 126:
            return self._read_any_head(data, position)
        after = position + 2
        if length == 126:
            length = data[after] << 8 | data[after + 1]
            if length < 126:
                return self._read_any_head(data, position)
            after += 2
        if self._masked:
            (self._key,) = _KEY.unpack_from(data, after)
            after += 4
        self._left = length
        return after

    def _read_any_head(self, data: memoryview, position: int) -> int:
        """Do the same for any frame, and refuse what is none."""
        kept = len(self._head)
        head = self._head + bytes(data[position : position + LONGEST_HEADER - kept])
        self._head = b""
        if len(head) < 2:
            self._head = head
            return len(data)
        first, second = head[0], head[1]
        self._check(first, second)
        size, length, least = 2, second & 127, 0
        if length > 125:
            size, least = (4, 126) if length == 126 else (10, 1 << 16)
            length = int.from_bytes(head[2:size], "big")
        if self._masked:
            size += 4
        if len(head) < size:
            self._head = head
            return len(data)
        if not least <= length < 1 << 63:
            raise BadFrame("a frame length in more bytes than it needs, or with its highest bit set")
        if self._masked:
            self._key = int.from_bytes(head[size - 4 : size], "little")
        opcode = first & 15
        if opcode >= CLOSE:
            self._control = opcode
        else:
            self._in_message = not first & 128
        self._left = length
        return position + size - kept

    def _check(self, first: int, second: int) -> None:
        opcode = first & 15
        if first & 0x70:
            raise BadFrame("reserved bits are set and no extension was agreed on")
        if bool(second & 128) != self._masked:
            raise BadFrame("a frame is masked" if second & 128 else "a frame is not masked")
        if opcode >= CLOSE:
            if opcode > PONG or not first & 128 or second & 127 > 125:
                raise BadFrame("a control frame that is unknown, cut or too long")
            if opcode == CLOSE and second & 127 == 1:
                raise BadFrame("a close frame with half a code")
        elif opcode not in (CONTINUATION, BINARY):
            raise BadFrame(f"frames of kind {opcode} are not spoken here")
        elif (opcode == CONTINUATION) != self._in_message:
            raise BadFrame("a continuation without a beginning, or a beginning inside a message")


class FrameWriter:
    """Makes frames; every message is one frame.

    :param to_server: whether frames are masked (they go to a server).
    """

    __slots__ = ("_masked",)

    def __init__(self, *, to_server: bool) -> None:
        self._masked = to_server

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Make ``buffer[start:end]`` the payload of a binary frame, in place.

        :return: where the frame begins: up to `LONGEST_HEADER` before *start*.
        """
        key = random.getrandbits(32) if self._masked else 0
        head = self._header(BINARY, end - start, key)
        if self._masked:
            mask(buffer[start:end], key)
        begin = start - len(head)
        buffer[begin:start] = head
        return begin

    def wrap(self, payload: bytes, opcode: int = BINARY) -> bytes:
        """Return a frame with *payload*."""
        size = len(payload)
        if not self._masked:
            return self._header(opcode, size, 0) + payload
        key = random.getrandbits(32)
        if size <= _SMALL:
            return self._header(opcode, size, key) + _mixed(payload, size, key)
        covered = bytearray(payload)
        mask(memoryview(covered), key)
        return self._header(opcode, size, key) + covered

    def _header(self, opcode: int, size: int, key: int) -> bytes:
        flag = 128 if self._masked else 0
        if size < 126:
            head = bytes((128 | opcode, flag | size))
        elif size < 65536:
            head = _SHORT.pack(128 | opcode, flag | 126, size)
        else:
            head = bytes((128 | opcode, flag | 127)) + size.to_bytes(8, "big")
        return head + key.to_bytes(4, "little") if self._masked else head
