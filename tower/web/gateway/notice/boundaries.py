"""Boundaries of frames in a relayed stream, WebSocket (RFC 6455) or SPDY/3.1.  No I/O.

Only the headers of frames are read, for their lengths.  The member is not trusted: after a frame that breaks
the protocol, or ends the connection, there is no boundary any more.  Many tiny frames have
the same effect: following them would take the proxy's time from others.
"""

from __future__ import annotations

from tower.net.pipes import Buffer
from tower.websocket.frames import CLOSE, CONTINUATION, PONG

#: Longest header without a mask, B.
_LONGEST_HEADER = 10

#: Size that stands for an invalid or final frame, no boundary follows it, B.
_ENDLESS = 1 << 63

#: Frames of one piece of data that are followed: this number, and one for each so many bytes.
_FEW, _LEAST_MEAN = 64, 32

#: First byte of most frames: a whole binary message.
_BINARY_MESSAGE = 0x82

#: SPDY: length of a frame header, B; version and types of control frames; type of GOAWAY.
_SPDY_HEADER = 8
_SPDY_VERSION = 3
_SPDY_TYPES = range(1, 10)
_SPDY_GOAWAY = 7


class Boundaries:
    """Follows the frames of one direction."""

    __slots__ = ("_head", "_left", "_unfinished")

    def __init__(self) -> None:
        self._head = b""  # an incomplete header
        self._left = 0  # of the current frame, B
        self._unfinished = False  # the current frame is not the last one of its message

    @property
    def is_at_one(self) -> bool:
        """Whether a frame of our own may follow."""
        return not (self._left or self._head or self._unfinished)

    def follow(self, data: Buffer) -> None:
        """Follow all of *data*."""
        at, size = self._left, len(data)
        most = _FEW + size // _LEAST_MEAN
        while at < size:
            if not (self._head or self._unfinished):
                at, most = self._skip(data, at, size - _LONGEST_HEADER, most)
                if at >= size:
                    break
            at = self._enter(data, at)
            most -= 1
            if most < 0:
                self._head, at = b"", _ENDLESS
        self._left = at - size

    def find(self, data: Buffer) -> int:
        """Follow *data* to the first boundary, and return its index; -1: there is none."""
        at, size = self._left, len(data)
        while at <= size:
            if not (self._head or self._unfinished):
                self._left = 0
                return at
            if at == size:
                break
            at = self._enter(data, at)
        self._left = at - size
        return -1

    def _enter(self, data: Buffer, at: int) -> int:
        """Read the header at *at*; return the end of its frame, which may be beyond *data*."""
        kept = len(self._head)
        head = self._head + bytes(data[at : at + _LONGEST_HEADER - kept])
        size = self._frame_size(head)
        if not size:
            self._head = head
            return len(data)
        self._head = b""
        return at - kept + size

    def _skip(self, data: Buffer, at: int, last: int, most: int) -> tuple[int, int]:
        """Skip up to *most* common frames that begin from *at* to *last*.

        Return the end of the last one, and how many more frames may follow.

        It is called between two messages, and written for speed: there may be thousands of frames.
        """
        raise NotImplementedError

    def _frame_size(self, head: bytes) -> int:
        """Return the size of the frame that begins with *head*; 0: not known yet."""
        raise NotImplementedError


class WebSocketBoundaries(Boundaries):
    """Follows the frames of a server; a boundary is the end of a message."""

    __slots__ = ()

    def _skip(self, data: Buffer, at: int, last: int, most: int) -> tuple[int, int]:
        while at <= last and data[at] == _BINARY_MESSAGE and most > 0:
            most -= 1
            length = data[at + 1]
            if length < 126:
                at += 2 + length
            elif length == 126:
                at += 4 + (data[at + 2] << 8 | data[at + 3])
            else:
                break
        return at, most

    def _frame_size(self, head: bytes) -> int:
        if len(head) < 2:
            return 0
        first, length = head[0], head[1]
        opcode, is_last = first & 15, first >= 128
        if opcode < CLOSE:
            if (opcode == CONTINUATION) != self._unfinished:
                return _ENDLESS
        elif opcode in (CLOSE, *range(PONG + 1, 16)) or length > 125 or not is_last:
            return _ENDLESS
        size = 2
        if length > 125:
            size = 4 if length == 126 else 10
            if len(head) < size:
                return 0
            length = int.from_bytes(head[2:size], "big")
            if length >= _ENDLESS or head[1] > 127:  # a server's frame with a mask
                return _ENDLESS
        if opcode < CLOSE:
            self._unfinished = not is_last
        return size + length


class SPDYBoundaries(Boundaries):
    """Follows the frames of either end."""

    __slots__ = ()

    def _skip(self, data: Buffer, at: int, last: int, most: int) -> tuple[int, int]:
        while at <= last and data[at] < 128 and most > 0:
            most -= 1
            at += _SPDY_HEADER + (data[at + 5] << 16 | data[at + 6] << 8 | data[at + 7])
        return at, most

    def _frame_size(self, head: bytes) -> int:
        if len(head) < _SPDY_HEADER:
            return 0
        if head[0] >= 128:
            version, kind = int.from_bytes(head[:2], "big") & 0x7FFF, int.from_bytes(head[2:4], "big")
            if version != _SPDY_VERSION or kind not in _SPDY_TYPES or kind == _SPDY_GOAWAY:
                return _ENDLESS
        return _SPDY_HEADER + int.from_bytes(head[5:8], "big")
