r"""Which paths of requests may lead elsewhere than they say.  No I/O.

A server that cleans a path takes a segment ``.`` or ``..`` out of it, and what it then serves is not what
was asked for, authorized and logged.  What a segment is differs between servers, so every reading counts: a
path is decoded as often as it was encoded, and ``/``, ``\`` and ``;`` end a segment (what follows ``;`` are
parameters).
"""

from __future__ import annotations

import re

# Each "25" behind a percent sign is one more time that the path was encoded.
_ENCODED_AGAIN = re.compile(rb"%(?:25)+")

_SPELLINGS = ((b"%2e", b"."), (b"%2f", b"/"), (b"%5c", b"\\"), (b"%3b", b";"))

_SEPARATORS = bytes.maketrans(b"\\;", b"//")


def has_dot_segment(target: bytes) -> bool:
    r"""Return whether the path of *target*, which may have a query, has a segment ``.`` or ``..``.

    No target has one in which neither ``/.`` nor any of ``%``, ``\`` and ``;`` is.
    """
    segments = _decoded(target).translate(_SEPARATORS) + b"/"
    return b"/./" in segments or b"/../" in segments


def leaves_prefix(target: bytes) -> bool:
    """Return whether *target* may be read as another path by a server that merges segments.

    That is where a segment is empty or there is a backslash.  Between a client and the server that it asks it
    means what the server says, but behind a path prefix that somebody else chose it may lead out of that.
    """
    path = _decoded(target)
    return b"//" in path or b"\\" in path


def _decoded(target: bytes) -> bytes:
    """Return the path of *target* with what separates segments, or is a dot, as it is."""
    path = target.partition(b"?")[0]
    if b"%" in path:
        path = _ENCODED_AGAIN.sub(b"%", path).lower()
        for encoded, plain in _SPELLINGS:
            path = path.replace(encoded, plain)
    return path
