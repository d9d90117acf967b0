"""IDs of requests: the same ID is in the answer, in all of Tower's logs and in the cluster's audit log."""

from __future__ import annotations

import itertools
import re
import uuid
from functools import lru_cache
from typing import Final

#: A valid ID of a client.
VALID_ID: Final = re.compile(rb"[0-9A-Za-z-]{1,64}")

#: Position of the ID in an `id_line`.
ID_BEGIN: Final = 10
ID_END: Final = 46

_BEGIN: Final = b"Audit-Id: %b" % str(uuid.uuid4())[:24].encode("ascii")

# Formatting of numbers takes longer than finding their text.
_ENDS: Final = [b"%02x\r\n" % number for number in range(256)]

_numbers = itertools.count(1)


def id_line() -> bytes:
    """Return a header line with a unique ID in UUID form; all IDs of one process have the same prefix."""
    number = next(_numbers)
    return _beginning(number >> 8) + _ENDS[number & 255]


@lru_cache(maxsize=1)
def _beginning(number: int) -> bytes:
    return b"%b%010x" % (_BEGIN, number)


def id_in(line: bytes) -> str:
    """Return the ID in an `id_line`."""
    return line[ID_BEGIN:ID_END].decode("ascii")


def new_request_id() -> str:
    """Return a unique ID in the form of a UUID."""
    return id_in(id_line())
