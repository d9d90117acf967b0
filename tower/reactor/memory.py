"""Return of freed memory to the system, which glibc keeps otherwise.

After thousands of TLS sessions the free memory is fragmented, and ``free`` releases only the end of the heap.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

#: Interval of `FreedMemory.look`, s.
LOOK = 5.0

#: Increase in free memory from which it is released, B.
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


def _calls() -> tuple[Callable[[], int], Callable[[], object]]:
    """Return functions that measure the free heap, B, and release it; no-ops without glibc 2.33."""
    library = ctypes.CDLL(None)
    try:
        info, trim = library.mallinfo2, library.malloc_trim
    except AttributeError:
        return lambda: 0, lambda: None
    info.restype = _Mallinfo2
    return lambda: int(info().fordblks), lambda: trim(ctypes.c_size_t(0))


class FreedMemory:
    """Releases free memory, if called each `LOOK` seconds; *free* returns the size of the free heap, B.

    Released memory still counts as free, so the increase since the minimum decides.
    """

    def __init__(
        self, free: Callable[[], int] | None = None, trim: Callable[[], object] | None = None
    ) -> None:
        own_free, own_trim = _calls()
        self._free = free or own_free
        self._trim = trim or own_trim
        self._least = self._free()

    def look(self) -> None:
        """Release memory if at least `WORTH` bytes became free; takes some milliseconds for 100 MiB."""
        free = self._free()
        if free - self._least >= WORTH:
            self._trim()
            self._least = self._free()
        else:
            self._least = min(self._least, free)
