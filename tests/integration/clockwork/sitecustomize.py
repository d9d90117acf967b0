"""Sets the time of day of a program that has this directory in PYTHONPATH, by what the file CLOCK_STEP says.

It holds how many seconds to add.  The time that passes is not touched.
"""

import os
import time

_told = time.time
_path = os.environ["CLOCK_STEP"]


def _set() -> float:
    """Return the time, s since the epoch, as somebody has set it."""
    with open(_path) as file:
        return _told() + float(file.read() or 0)


time.time = _set
