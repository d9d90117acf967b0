"""Where a message body ends (RFC 9112 sections 6 and 7), found without touching the bytes.

Bodies pass through Tower unchanged; what has to be known is only where the next message begins.  A body
is an integer: its length in bytes, or `CHUNKED`, or `UNTIL_CLOSE`.
"""

from __future__ import annotations

import re

from tower.errors import PeerError
from tower.pipes import Buffer

#: The body comes in chunks.
CHUNKED = -1

#: The body ends with the connection (responses only).
UNTIL_CLOSE = -2

#: Longest chunk-size line with its extensions, B.
CHUNK_LINE_LIMIT = 1024

#: Longest trailer section, B.
TRAILER_LIMIT = 16 * 1024

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[\t ]*+(?:;[\t -~\x80-\xff]*+)?\r\n")
_TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):[\t -~\x80-\xff]*+\r\n")

# Fields that frame, route or identify mean nothing behind a body, except to whoever merges trailers.
_FORBIDDEN_TRAILER = re.compile(
    rb"(?i:content-length|transfer-encoding|host|connection|upgrade|te|trailer|authorization"
    rb"|impersonate[-_].*|x[-_]remote[-_].*)"
)


class BadBody(PeerError):
    """The chunked framing is broken, so nobody can tell where the next message begins."""


class ChunkedBody:
    """Follows one chunked body.

    :param pieces: if given, the payload is collected there (for peers that know no chunks).
    """

    __slots__ = ("_left", "_line", "_state", "_trailers", "pieces")

    def __init__(self, pieces: list[bytes] | None = None) -> None:
        self.pieces = pieces
        self._left = 0
        self._line = b""
        self._state = _SIZE
        self._trailers = 0

    def feed(self, data: Buffer, start: int = 0) -> int:
        """Follow *data* from index *start*.

        :return: the index just behind the body, or -1 while it goes on.
        :raise BadBody: on anything RFC 9112 section 7.1 does not allow.
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
            limit = CHUNK_LINE_LIMIT if self._state is not _TRAILERS else TRAILER_LIMIT
            piece = bytes(data[position : position + limit])
            newline = piece.find(b"\n")
            if newline < 0:
                self._line += piece
                position += len(piece)
                if len(self._line) > limit:
                    raise BadBody("a line of the chunked body is too long")
                if self._state is _END_OF_DATA and self._line != b"\r":
                    raise BadBody("a chunk does not end where its size says")
                continue
            position += newline + 1
            line, self._line = self._line + piece[: newline + 1], b""
            if len(line) > limit:
                raise BadBody("a line of the chunked body is too long")
            if self._take_line(line):
                return position
        return -1

    def _take_line(self, line: bytes) -> bool:
        """Act on one line of framing; True when it was the last."""
        if self._state is _SIZE:
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise BadBody("a chunk does not begin with its size")
            self._left = int(match[1], 16)
            self._state = _END_OF_DATA if self._left else _TRAILERS
            return False
        if line == b"\r\n":
            if self._state is _TRAILERS:
                return True
            self._state = _SIZE
            return False
        if self._state is _END_OF_DATA:
            raise BadBody("a chunk does not end where its size says")
        self._trailers += len(line)
        match = _TRAILER.fullmatch(line)
        if match is None or self._trailers > TRAILER_LIMIT:
            raise BadBody("the trailers are malformed or too long")
        if _FORBIDDEN_TRAILER.fullmatch(match[1]):
            raise BadBody("a field that may not be a trailer is one")
        return False


_SIZE, _END_OF_DATA, _TRAILERS = "size", "end of data", "trailers"
