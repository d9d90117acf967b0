"""Gives memory back to the system that the process has freed: glibc keeps it, however much it is.

After thousands of TLS sessions what is free lies in small pieces between others, and ``free`` gives back only
what lies at the end of the heap.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: How often to look, s.
LOOK = 5.0

#: So much more has to be free than when it was looked at before, B.
WORTH = 4 * 1024 * 1024


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"),
            *("fordblks", "keepcost"),
        )
    ]


def _nothing() -> int:
    """Stand in for what this C library has not."""
    return 0


def _calls() -> tuple[Callable[[], int], Callable[[], object]]:
    """Return what tells how much of the heap is free, B, and what gives it back; glibc 2.33 has both."""
    library = ctypes.CDLL(None)
    try:
        info, trim = library.mallinfo2, library.malloc_trim
    except AttributeError:
        return _nothing, _nothing
    info.restype = _Mallinfo2
    return lambda: int(info().fordblks), lambda: trim(ctypes.c_size_t(0))


class FreedMemory:
    """Looks from time to time, see `LOOK`, whether there is something to give back.

    What was given back still counts as free, so what counts is how much more it is than the least since then.

    :param free: returns how much of the heap is free, B.
    :param trim: gives it back.
    """

    def __init__(
        self, free: Callable[[], int] | None = None, trim: Callable[[], object] | None = None
    ) -> None:
        own_free, own_trim = _calls()
        self._free = free or own_free
        self._trim = trim or own_trim
        self._least = self._free()

    def look(self) -> None:
        """Give back what has become free, if it is worth the while: some milliseconds for 100 MiB."""
        free = self._free()
        if free - self._least >= WORTH:
            self._trim()
            self._least = self._free()
        else:
            self._least = min(self._least, free)
