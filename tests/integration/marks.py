"""Bytes that name their owner in every part: bytes of another owner cannot hide among them."""

from __future__ import annotations

#: Each piece of this size repeats its owner, its exchange and its offset, B.
RECORD = 256


class Strayed(AssertionError):
    """Bytes of another owner, or from another offset."""


def marked(owner: str, begin: int, end: int) -> bytes:
    """Return the bytes from *begin* to *end* of the endless stream of *owner*."""
    first, last = begin // RECORD, -(-end // RECORD)
    records = []
    for place in range(first, last):
        mark = b"%b#%d;" % (owner.encode(), place)
        records.append((mark * (RECORD // len(mark) + 1))[:RECORD])
    shift = first * RECORD
    return b"".join(records)[begin - shift : end - shift]


class Follower:
    """Compares bytes, in pieces of any size, with the expected ones.

    :param owner: of the bytes: a user, a cluster, an exchange, and the direction.
    :ivar seen: received so far, B.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.seen = 0

    def feed(self, data: bytes) -> None:
        """Check the next piece.

        :raise Strayed: it is not the expected one.
        """
        end = self.seen + len(data)
        wanted = marked(self.owner, self.seen, end)
        if data != wanted:
            at = next(place for place, (a, b) in enumerate(zip(data, wanted, strict=True)) if a != b)
            got = data[max(0, at - 40) : at + 80]
            raise Strayed(f"{self.owner}: {got!r} at byte {self.seen + at} is unexpected")
        self.seen = end
