"""Shifts the time of day of a program that has this directory in PYTHONPATH.

The file CLOCK_STEP holds the seconds to add.  Monotonic time is not changed.
"""

import os
import time

_told = time.time
_path = os.environ["CLOCK_STEP"]


def _set() -> float:
    """Return the shifted time, s since the epoch."""
    with open(_path) as file:
        return _told() + float(file.read() or 0)


time.time = _set
