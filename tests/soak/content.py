"""The bytes that go through: known to both ends by an offset and a size, so that each can be checked."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from functools import lru_cache

_BLOCK = random.Random(4).randbytes(1 << 20)
_TWICE = _BLOCK * 2


def pieces(offset: int, size: int, piece: int = 64 * 1024) -> Iterator[bytes]:
    """Yield *size* bytes that begin *offset* into the endless repetition of one random block."""
    position = offset % len(_BLOCK)
    while size > 0:
        part = _TWICE[position : position + min(size, piece)]
        yield part
        size -= len(part)
        position = (position + len(part)) % len(_BLOCK)


@lru_cache(1024)
def digest(offset: int, size: int) -> str:
    """Return the SHA-256 of what `pieces` yields, in hexadecimal."""
    sha = hashlib.sha256()
    for piece in pieces(offset, size, len(_BLOCK)):
        sha.update(piece)
    return sha.hexdigest()
