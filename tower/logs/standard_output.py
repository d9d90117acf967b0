"""Standard output, which the program's log under twistd, the access log and the audit log may share.

They write to its descriptor: twistd replaces `sys.stdout`, whose lock would also abort a program that ends
while a thread waits for a slow reader.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Final

#: Held while whole lines are written, so that other threads' lines do not get between them.
LOCK: Final = threading.Lock()


def standard_output() -> int:
    """Return the descriptor; that of a new ``/dev/null`` if the process was started without standard output.

    In such a process, the descriptor of standard output may be another file.
    """
    return os.open(os.devnull, os.O_WRONLY) if sys.__stdout__ is None else 1


def write_lines(descriptor: int, data: bytes) -> None:
    """Write lines to the *descriptor* of standard output; wait while the reader of a pipe is slow.

    :raise OSError: not all were written.
    """
    left = memoryview(data)
    with LOCK:
        while left:
            left = left[write_some(descriptor, left) :]


def write_some(descriptor: int, data: memoryview) -> int:
    """Write a part of *data*, or all; return its size, B; wait while the reader of a pipe is slow."""
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:
            select.select([], [descriptor], [], 1.0)
