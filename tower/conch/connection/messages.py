"""Messages 90 to 100 of RFC 4254 as bytes: numbers, sizes, formats.  No I/O."""

from __future__ import annotations

from struct import Struct

from tower.errors import PeerError

OPEN, CONFIRM, REFUSE, ADJUST, DATA, EXTENDED, END, CLOSE, REQUEST, SUCCESS, FAILURE = range(90, 101)

#: Data of the longest packet, and of one that always fits, B.
LONGEST_DATA = 256 * 1024
ALWAYS_FITS = 4096

#: Peers that take only shorter packets are refused: they cost more work than they do, B.
SHORTEST_PACKET = 1024

#: Largest possible window, B.
LARGEST_WINDOW = 2**32 - 1

#: Head of a packet with data (padding length, type, channel, size) and its length, B.
DATA_HEAD = Struct(">BBII")
DATA_OFFSET = 10

#: A message about a channel, without and with a number.
ABOUT = Struct(">BI")
ABOUT_WITH = Struct(">BII")

#: Numbers within a message.
NUMBER, PAIR, THREE = Struct(">I"), Struct(">II"), Struct(">III")

_CONFIRMATION = Struct(">BIIII")


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
