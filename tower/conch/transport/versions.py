"""The lines with which SSH begins (RFC 4253 section 4.2).  No I/O."""

from __future__ import annotations

import re

from tower import __version__
from tower.errors import PeerError

#: What we are; without the end of the line.
OURS = b"SSH-2.0-Tower_" + __version__.encode()

#: What a peer's line has to be.
SSH_2 = re.compile(rb"SSH-(?:2\.0|1\.99)-[!-~][ -~]*")

#: The longest version line with its CRLF, and all that a server may say up to the end of it, B.
_LONGEST = 255
_LONGEST_PREFACE = 4096


def take_version(
    unparsed: bytearray, received: int, *, from_server: bool, wanted: re.Pattern[bytes] = SSH_2
) -> bytes | None:
    """Take the peer's version line off the front of *unparsed* and return it; None while it is not there.

    :param received: bytes that the peer sent so far.
    :param from_server: a server may say something else before it, which is taken off too.
    :param wanted: what the line has to be.
    :raise PeerError: there is none, or none of a version that we speak.
    """
    while (end := unparsed.find(b"\n")) >= 0:
        line = bytes(unparsed[:end]).removesuffix(b"\r")
        if line.startswith(b"SSH-"):
            if end >= _LONGEST or not wanted.fullmatch(line):
                raise PeerError("an unsupported SSH version")
            del unparsed[: end + 1]
            return line
        if not from_server:
            raise PeerError("no SSH version line")
        del unparsed[: end + 1]
    if len(unparsed) > (_LONGEST_PREFACE if from_server else _LONGEST) or received > _LONGEST_PREFACE:
        raise PeerError("no SSH version line")
    return None
