"""Framing of message bodies (RFC 9112 sections 6 and 7): finds the end without changing the bytes.

Bodies pass through Tower unchanged; only the start of the next message must be known.  A body is described by
an integer: its length in bytes, or `CHUNKED`, or `UNTIL_CLOSE`.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from tower.errors import PeerError
from tower.net.pipes import Buffer

#: The body comes in chunks.
CHUNKED: Final = -1

#: The body ends with the connection (responses only).
UNTIL_CLOSE: Final = -2

#: Longest chunk-size line with its extensions, B.
CHUNK_LINE_LIMIT: Final = 1024

#: Longest trailer section, B.
TRAILER_LIMIT: Final = 16 * 1024

# Blanks before the line's end are common; before an extension, Go and others reject them.
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[\t ]*|;[\t -~\x80-\xff]*)\r\n")
_TRAILER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[\t -~\x80-\xff]*\r\n")

# Fields that frame, route or identify have no meaning after a body, except for servers that merge trailers.
_FORBIDDEN_TRAILER: Final = re.compile(
    rb"(?i:content-length|transfer-encoding|host|connection|upgrade|te|trailer|authorization"
    rb"|impersonate[-_].*|x[-_]remote[-_].*)"
)

# States: the expected line.
_SIZE: Final = "size"
_END_OF_DATA: Final = "end of data"
_TRAILERS: Final = "trailers"
_OVER: Final = "over"

_CR: Final = 0x0D
_LF: Final = 0x0A


class BadBody(PeerError):
    """The chunked framing is malformed: the start of the next message is unknown."""

    code: ClassVar[int] = 400


class ChunkedBody:
    """Follows one chunked body.

    :param pieces: if given, collects the payload (for peers without chunked encoding).
    :param forbidden: names of further fields that are rejected as trailers.
    """

    __slots__ = ("_forbidden", "_left", "_line", "_state", "_trailers", "pieces")

    def __init__(self, pieces: list[bytes] | None = None, forbidden: re.Pattern[bytes] | None = None) -> None:
        self.pieces = pieces
        self._forbidden = forbidden
        self._left = 0
        self._line = b""
        self._state = _SIZE
        self._trailers = 0

    @property
    def is_between_chunks(self) -> bool:
        """Whether a chunk has ended and no other one has begun."""
        return self._state is _SIZE and not self._line and not self._left

    def feed(self, data: Buffer, start: int = 0) -> int:
        """Follow *data* from index *start*; return the index after the body, or -1 while it continues.

        :raise BadBody: on anything that RFC 9112 section 7.1 does not allow.
        """
        position, end = start, len(data)
        while position < end:
            if self._left:
                stop = min(end, position + self._left)
                if self.pieces is not None:
                    self.pieces.append(bytes(data[position:stop]))
                self._left -= stop - position
                position = stop
                continue
            if self._state is _SIZE and not self._line:
                match = _SIZE_LINE.match(data, position, position + CHUNK_LINE_LIMIT)
                if match is not None and (size := int(match[1], 16)):
                    begin = match.end()
                    stop = begin + size
                    # most chunks are complete: skip them without looking for lines
                    if stop + 2 <= end and data[stop] == _CR and data[stop + 1] == _LF:
                        if self.pieces is not None:
                            self.pieces.append(bytes(data[begin:stop]))
                        position = stop + 2
                        continue
            position = self._follow_line(data, position)
            if self._state is _OVER:
                return position
        return -1

    def _follow_line(self, data: Buffer, position: int) -> int:
        """Follow the framing line at *position*; return the index of its end, or that of *data*."""
        limit = CHUNK_LINE_LIMIT if self._state is not _TRAILERS else TRAILER_LIMIT
        piece = bytes(data[position : position + limit])
        newline = piece.find(b"\n")
        line = self._line + (piece if newline < 0 else piece[: newline + 1])
        if len(line) > limit:
            raise BadBody("a line of the chunked body is too long")
        if newline >= 0:
            self._line = b""
            self._take_line(line)
            return position + newline + 1
        self._line = line
        if self._state is _END_OF_DATA and line != b"\r":
            raise BadBody("the data of a chunk does not match its size")
        return position + len(piece)

    def _take_line(self, line: bytes) -> None:
        """Process one framing line."""
        if self._state is _SIZE:
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise BadBody("a chunk does not begin with its size")
            self._left = int(match[1], 16)
            self._state = _END_OF_DATA if self._left else _TRAILERS
            return
        if line == b"\r\n":
            self._state = _OVER if self._state is _TRAILERS else _SIZE
            return
        if self._state is _END_OF_DATA:
            raise BadBody("the data of a chunk does not match its size")
        self._trailers += len(line)
        match = _TRAILER.fullmatch(line)
        if match is None or self._trailers > TRAILER_LIMIT:
            raise BadBody("the trailers are malformed or too long")
        also = self._forbidden
        if _FORBIDDEN_TRAILER.fullmatch(match[1]) or (also is not None and also.fullmatch(match[1])):
            raise BadBody("a trailer has a field name that is not allowed there")
