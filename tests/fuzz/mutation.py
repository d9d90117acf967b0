"""Making bad inputs of good ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Longest input that is made, B.
LONGEST = 8192

#: Numbers at which something may change.
_EDGES = (0, 1, 2, 125, 126, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)


def mutated(chance: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Return one of *corpus* with a few changes, and sometimes with *words* inserted.

    Sometimes it is one of them unchanged, or only noise.
    """
    dice = chance.random()
    if dice < 0.02:
        return chance.randbytes(chance.randrange(64))
    data = bytearray(chance.choice(corpus))
    if dice < 0.05:
        return bytes(data)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        _change(chance, data, corpus, words)
    return bytes(data[:LONGEST])


def _change(chance: random.Random, data: bytearray, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    place = chance.randrange(len(data) + 1)
    span = min(len(data) - place, chance.choice((1, 1, 2, 4, 8, 16, 64)))
    match chance.randrange(10):
        case 0 if place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        case 1 if place < len(data):
            data[place] = chance.randrange(256)
        case 2:
            del data[place : place + span]
        case 3:
            data[place:place] = data[place : place + span] * chance.choice((1, 2, 10))
        case 4:
            data[place:place] = chance.randbytes(span)
        case 5:
            size = chance.choice((1, 2, 4, 8))
            number = (chance.choice(_EDGES) + chance.randrange(-1, 2)) % (1 << 8 * size)
            data[place : place + size] = number.to_bytes(size, "big")
        case 6:
            other = chance.choice(corpus)
            begin = chance.randrange(len(other) + 1)
            data[place : place + span] = other[begin : begin + chance.randrange(1, 80)]
        case 7:
            del data[place:]
        case _ if words:
            word = chance.choice(words)
            data[place : place + chance.choice((0, span, len(word)))] = word


def cuts(chance: random.Random, data: bytes) -> list[bytes]:
    """Return *data* in pieces, none of them empty."""
    if not data:
        return []
    if len(data) < 300 and chance.random() < 0.3:
        return [data[place : place + 1] for place in range(len(data))]
    count = min(len(data) - 1, chance.choice((1, 1, 2, 3, 10)))
    places = sorted(chance.sample(range(1, len(data)), count))
    return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
