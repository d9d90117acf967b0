"""Messages 90 to 100 of RFC 4254 as bytes: their numbers, sizes, and how they are put together.  No I/O."""

from __future__ import annotations

from struct import Struct

OPEN, CONFIRM, REFUSE, ADJUST, DATA, EXTENDED, END, CLOSE, REQUEST, SUCCESS, FAILURE = range(90, 101)

#: Data of the longest packet there is, and of one about whose length nobody needs to think, B.
LONGEST_DATA = 256 * 1024
ALWAYS_FITS = 4096

#: A peer that takes only shorter packets than this makes more work than it does, B.
SHORTEST_PACKET = 1024

#: The largest window there can be, B.
LARGEST_WINDOW = 2**32 - 1

#: In front of the data of a packet: padding length, type, channel and size; and their length, B.
DATA_HEAD = Struct(">BBII")
DATA_OFFSET = 10

#: A message about a channel that says nothing more, and one that says a number.
ABOUT = Struct(">BI")
ABOUT_WITH = Struct(">BII")

#: Numbers within a message.
NUMBER, PAIR, THREE = Struct(">I"), Struct(">II"), Struct(">III")

_CONFIRMATION = Struct(">BIIII")


def data_head(remote: int) -> bytes:
    """Return the beginning of a message with data, up to the size of its data."""
    return b"\x5e" + remote.to_bytes(4, "big")


def opening(kind: bytes, local: int, window: int, data: bytes) -> bytes:
    """Return the message that asks for a channel.

    :param local: our number of it.
    :param window: what the peer may send, B.
    :param data: what belongs to this type of channel.
    """
    return b"%c%b%b%b%b" % (OPEN, NUMBER.pack(len(kind)), kind, THREE.pack(local, window, LONGEST_DATA), data)


def confirmation(remote: int, local: int, window: int) -> bytes:
    """Return the message that opens a channel which the peer asked for; see `opening`."""
    return _CONFIRMATION.pack(CONFIRM, remote, local, window, LONGEST_DATA)


def refusal(remote: int, reason: int, text: str) -> bytes:
    """Return the message that refuses a channel.

    :param reason: RFC 4254's number.
    """
    said = text.encode()[:1024]
    return ABOUT_WITH.pack(REFUSE, remote, reason) + NUMBER.pack(len(said)) + said + bytes(4)
