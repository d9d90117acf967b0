"""Bytes that say whose they are, in every part: nothing of another's can hide among them."""

from __future__ import annotations

#: Each piece of this size names its owner, its exchange and its place again and again, B.
RECORD = 256


class Strayed(AssertionError):
    """Bytes that belong to somebody else, or to another place."""


def marked(owner: str, begin: int, end: int) -> bytes:
    """Return the bytes from *begin* to *end* of what belongs to *owner*, which is endless."""
    first, last = begin // RECORD, -(-end // RECORD)
    records = []
    for place in range(first, last):
        mark = b"%b#%d;" % (owner.encode(), place)
        records.append((mark * (RECORD // len(mark) + 1))[:RECORD])
    shift = first * RECORD
    return b"".join(records)[begin - shift : end - shift]


class Follower:
    """Holds bytes that come in any pieces against what they have to be.

    :param owner: whose they are: a user, a cluster, an exchange, and the way that they go.
    :ivar seen: how many have come, B.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.seen = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece.

        :raise Strayed: it is not what belongs here.
        """
        end = self.seen + len(data)
        wanted = marked(self.owner, self.seen, end)
        if data != wanted:
            at = next(place for place, (a, b) in enumerate(zip(data, wanted, strict=True)) if a != b)
            got = data[max(0, at - 40) : at + 80]
            raise Strayed(f"{self.owner}: {got!r} at byte {self.seen + at} in place of its own")
        self.seen = end
