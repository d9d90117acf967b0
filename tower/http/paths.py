r"""Detection of request paths that a server may normalize to another path.  No I/O.

A server that cleans a path removes ``.`` and ``..`` segments, and then serves a resource that was not
requested, authorized and logged.  Servers split segments differently, so every reading counts: a path is
decoded as often as it was encoded, and ``/``, ``\`` and ``;`` end a segment (parameters follow ``;``).
"""

from __future__ import annotations

import re

# Each "25" after a percent sign is one more level of encoding.
_ENCODED_AGAIN = re.compile(rb"%(?:25)+")

_SPELLINGS = ((b"%2e", b"."), (b"%2f", b"/"), (b"%5c", b"\\"), (b"%3b", b";"))

_SEPARATORS = bytes.maketrans(b"\\;", b"//")


def has_dot_segment(target: bytes) -> bool:
    r"""Return whether the path of *target*, which may have a query, has a segment ``.`` or ``..``.

    A target without ``/.``, ``%``, ``\`` and ``;`` has none.
    """
    segments = _decoded(target).translate(_SEPARATORS) + b"/"
    return b"/./" in segments or b"/../" in segments


def leaves_prefix(target: bytes) -> bool:
    """Return whether a server that merges segments may read *target* as another path.

    That is a target with an empty segment or a backslash.  It is harmless if the client chose the whole path,
    but may leave a path prefix that Tower added.
    """
    path = _decoded(target)
    return b"//" in path or b"\\" in path


def _decoded(target: bytes) -> bytes:
    """Return the path of *target* with all dots and separators of segments decoded."""
    path = target.partition(b"?")[0]
    if b"%" in path:
        path = _ENCODED_AGAIN.sub(b"%", path).lower()
        for encoded, plain in _SPELLINGS:
            path = path.replace(encoded, plain)
    return path
