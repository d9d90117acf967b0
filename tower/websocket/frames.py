"""WebSocket frames (RFC 6455 section 5) after Autobahn's handshake.  No I/O.

Written for speed: payload is masked and unmasked in place, never copied, and a frame's header is written into
room before it.  Message borders have no meaning for a tunnel (a peer may split its messages into any frames),
so payload is returned as it is received, before its frame is complete.

Deployed agents of kubesphere-v1 split each message into frames of 1,024 bytes, so that a packet of 32 KiB
comes as 33 frames.  Such runs are processed as a whole: one by one, they would take more time than all other
work on their bytes.

Masks are random, since intermediaries may require them.  They protect no secret, since the payload is
encrypted, so the process's pseudo-random generator suffices.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from tower.errors import PeerError
from tower.websocket.masks import Maskers, mask, masked, rotated

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

#: Longest header of a `FrameWriter`, and room to leave before the payload, B.
LONGEST_HEADER: Final = 14

_KEY: Final = Struct("4s")
_SHORT: Final = Struct(">BBH")

#: Payload up to this size is moved to the end of the previous piece, B.
_LITTLE: Final = 2048

#: Payload of gorilla/websocket's frames in deployed agents: the size of its write buffer, B.
_CUT: Final = 1024
_STRIDE: Final = 8 + _CUT

#: Frames of a run: a packet of 32 KiB, the longest of deployed agents, has at most so many more.
_LONGEST_RUN: Final = 32

_HEAD_OF_RUN: Final = rb"\xfe\x04\x00"

#: The first four bytes of each frame of a run, in the allowed orders.
_RUN_IN_MESSAGE: Final = re.compile(
    rb"(?:\x00~)*(?:\x80~(?:\x02~(?:\x00~)*\x80~|\x82~)*(?:\x02~(?:\x00~)*)?)?".replace(b"~", _HEAD_OF_RUN)
)
_RUN: Final = re.compile(rb"(?:\x02~(?:\x00~)*\x80~|\x82~)*(?:\x02~(?:\x00~)*)?".replace(b"~", _HEAD_OF_RUN))

#: Payloads of a run, by number of frames; the buffer in which they are joined and unmasked.
_PAYLOADS: Final = [Struct(f"8x{_CUT}s" * count) for count in range(_LONGEST_RUN + 1)]
_MASKERS: Final = Maskers(_LONGEST_RUN, _CUT)


class BadFrame(PeerError):
    """The peer broke RFC 6455."""


class Control(NamedTuple):
    """A control frame: `CLOSE`, `PING` or `PONG` and its at most 125 bytes."""

    opcode: int
    payload: bytes


#: Position of payload, (begin, end), or a control frame.
Piece: TypeAlias = tuple[int, int] | Control


def _add(found: list[Piece], data: memoryview, begin: int, end: int) -> None:
    """Add payload to *found*; move a small one to the end of the previous piece."""
    size = end - begin
    if size <= _LITTLE and found and not isinstance(last := found[-1], Control):
        start, stop = last
        data[stop : stop + size] = data[begin:end]
        found[-1] = start, stop + size
    else:
        found.append((begin, end))


class FrameReader:
    """Parses frames.

    :param from_client: whether frames must be masked (from a client) or must not be.
    :param on_text: called at the first text message; all are processed as binary.  None: reject them.
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
        "_on_text",
        "_opcodes",
    )

    def __init__(self, *, from_client: bool, on_text: Callable[[], None] | None = None) -> None:
        self._masked = from_client
        self._mask_bit = 128 if from_client else 0
        self._on_text = on_text
        self._opcodes = (CONTINUATION, BINARY) if on_text is None else (CONTINUATION, BINARY, TEXT)
        self._head = b""
        self._left = 0
        self._key = b""
        self._control: int | None = None
        self._control_payload = b""
        self._in_message = False

    def feed(self, data: memoryview) -> list[Piece]:
        """Return the positions of payload in *data*, unmasked in place, and the control frames between them.

        Payload of small frames is moved to the end of the previous piece.

        :raise BadFrame: *data* violates RFC 6455.
        """
        found: list[Piece] = []
        position, end = 0, len(data)
        while position < end:
            if not self._left:
                if (
                    self._masked
                    and end - position >= 2 * _STRIDE
                    and data[position + 2] == data[position + _STRIDE + 2] == _CUT >> 8
                    and not self._head
                ):
                    position = self._take_run(data, position, found)
                position = self._read_head(data, position)
                if self._head:
                    break
            size = min(self._left, end - position)
            until = position + size
            if self._masked:
                mask(data[position:until], self._key)
                if size < self._left:
                    self._key = rotated(self._key, size)
            self._left -= size
            if self._control is not None:
                self._take_control(data[position:until], found)
            elif size:
                _add(found, data, position, until)
            position = until
        return found

    def _take_control(self, data: memoryview, found: list[Piece]) -> None:
        """Add payload of a control frame, possibly incomplete."""
        opcode = self._control
        assert opcode is not None
        self._control_payload += bytes(data)
        if not self._left:
            found.append(Control(opcode, self._control_payload))
            self._control, self._control_payload = None, b""

    def _take_run(self, data: memoryview, begin: int, found: list[Piece]) -> int:
        """Process the complete frames of `_CUT` bytes from *begin*, if there are at least two.

        :return: position of the first frame that was not processed; it may be invalid.
        """
        count = min((len(data) - begin) // _STRIDE, _LONGEST_RUN)
        words = data[begin : begin + count * _STRIDE].cast("I")
        heads = words[:: _STRIDE // 4].tobytes()
        match = (_RUN_IN_MESSAGE if self._in_message else _RUN).match(heads)
        assert match is not None  # it may be empty
        length = match.end()
        if length < 8:
            return begin
        self._in_message = heads[length - 4] < 128
        count = length // 4
        size = count * _CUT
        run = _MASKERS.pieces[:size]
        run[:] = b"".join(_PAYLOADS[count].unpack_from(data, begin))
        _MASKERS.mask(words[1 : count * _STRIDE // 4 : _STRIDE // 4])
        start = goal = begin
        if found and not isinstance(last := found[-1], Control):
            start, goal = last
            found.pop()
        data[goal : goal + size] = run
        found.append((start, goal + size))
        return begin + count * _STRIDE

    def _read_head(self, data: memoryview, position: int) -> int:
        """Read the next frame's header; keep an incomplete one in ``_head``.

        Nearly all frames are shorter than 64 KiB and of a binary message, so these are checked first.
        """
        if self._head or len(data) - position < LONGEST_HEADER:
            return self._read_any_head(data, position)
        first, length = data[position], data[position + 1] ^ self._mask_bit
        if first & 127 != (CONTINUATION if self._in_message else BINARY) or length > 126:
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
        self._in_message = first < 128
        self._left = length
        return after

    def _read_any_head(self, data: memoryview, position: int) -> int:
        """Do the same for any frame; reject invalid ones."""
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
            raise BadFrame("a frame length with more bytes than it needs, or with its highest bit set")
        if self._masked:
            self._key = head[size - 4 : size]
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
                raise BadFrame("a control frame that is unknown, fragmented or too long")
            if opcode == CLOSE and second & 127 == 1:
                raise BadFrame("a close frame with an incomplete status code")
        elif opcode not in self._opcodes:
            raise BadFrame(f"frames with opcode {opcode} are not supported")
        elif (opcode == CONTINUATION) != self._in_message:
            raise BadFrame("a continuation frame outside of a message, or a new message inside another")
        elif opcode == TEXT and self._on_text is not None:
            on_text, self._on_text = self._on_text, None
            on_text()


class FrameWriter:
    """Writes frames, one for each message; masked if they go *to_server*."""

    __slots__ = ("_masked",)

    def __init__(self, *, to_server: bool) -> None:
        self._masked = to_server

    def wrap_into(self, buffer: memoryview, start: int, end: int) -> int:
        """Make ``buffer[start:end]`` the payload of a binary frame, in place; return the start of the frame.

        It is up to `LONGEST_HEADER` before *start*.
        """
        key = random.getrandbits(32).to_bytes(4, "little") if self._masked else b""
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
            return self._header(opcode, size, b"") + payload
        key = random.getrandbits(32).to_bytes(4, "little")
        return self._header(opcode, size, key) + masked(payload, key)

    def _header(self, opcode: int, size: int, key: bytes) -> bytes:
        flag = 128 if self._masked else 0
        if size < 126:
            head = bytes((128 | opcode, flag | size))
        elif size < 65536:
            head = _SHORT.pack(128 | opcode, flag | 126, size)
        else:
            head = bytes((128 | opcode, flag | 127)) + size.to_bytes(8, "big")
        return head + key
