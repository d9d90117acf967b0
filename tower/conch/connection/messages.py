"""Messages 90 to 100 of RFC 4254 as bytes: numbers, sizes, formats.  No I/O."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tower.errors import PeerError

OPEN: Final = 90
CONFIRM: Final = 91
REFUSE: Final = 92
ADJUST: Final = 93
DATA: Final = 94
EXTENDED: Final = 95
END: Final = 96
CLOSE: Final = 97
REQUEST: Final = 98
SUCCESS: Final = 99
FAILURE: Final = 100

#: Data of the longest packet, and of one that always fits, B.
LONGEST_DATA: Final = 256 * 1024
ALWAYS_FITS: Final = 4096

#: Peers that take only shorter packets are refused: they cost more work than they do, B.
SHORTEST_PACKET: Final = 1024

#: Largest possible window, B.
LARGEST_WINDOW: Final = 2**32 - 1

#: Head of a packet with data (padding length, type, channel, size) and its length, B.
DATA_HEAD: Final = Struct(">BBII")
DATA_OFFSET: Final = 10

#: A message about a channel, without and with a number.
ABOUT: Final = Struct(">BI")
ABOUT_WITH: Final = Struct(">BII")

#: Numbers within a message.
NUMBER: Final = Struct(">I")
PAIR: Final = Struct(">II")
THREE: Final = Struct(">III")

_CONFIRMATION: Final = Struct(">BIIII")


class BadSequence(PeerError):
    """A message that the peer must not send after its earlier ones."""


def data_head(remote: int) -> bytes:
    """Return the head of a message with data, without the size of its data."""
    return b"\x5e" + remote.to_bytes(4, "big")


def opening(kind: bytes, local: int, window: int, data: bytes) -> bytes:
    """Return the message that requests a channel.

    :param window: initial window for the peer, B.
    """
    return b"%c%b%b%b%b" % (OPEN, NUMBER.pack(len(kind)), kind, THREE.pack(local, window, LONGEST_DATA), data)


def confirmation(remote: int, local: int, window: int) -> bytes:
    """Return the message that confirms a channel; see `opening`."""
    return _CONFIRMATION.pack(CONFIRM, remote, local, window, LONGEST_DATA)


def refusal(remote: int, reason: int, text: str) -> bytes:
    """Return the message that refuses a channel.

    :param reason: RFC 4254's number.
    """
    encoded = text.encode()[:1024]
    return ABOUT_WITH.pack(REFUSE, remote, reason) + NUMBER.pack(len(encoded)) + encoded + bytes(4)
