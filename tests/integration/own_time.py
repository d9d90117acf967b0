"""The time that programs need, without the time in which a busy machine let them wait for a processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.integration.programs import PATIENCE, Program, wait_for


class OwnTime:
    """Begins when it is created.  On a machine without other load, it is the time that passes.

    :param programs: that work in turns; they run.
    """

    def __init__(self, *programs: Program) -> None:
        self._delays = {each.pid: 0.0 for each in programs}
        self._sample()
        self._began, self._waited = time.monotonic(), 0.0

    def passed(self) -> float:
        """Return the time since the start, s; must be called often."""
        self._waited += self._sample()
        return time.monotonic() - self._began - self._waited

    def skip(self) -> None:
        """Do not subtract the time in which they have waited since the last call: they had nothing to do."""
        self._sample()

    def until(
        self, what: str, ready: Callable[[], object], timeout: float = PATIENCE, every: float = 0.02
    ) -> float:
        """Wait until *ready* returns something true; return the time since the start, s."""
        wait_for(what, lambda: self.passed() and ready(), timeout, every)
        return self.passed()

    def _sample(self) -> float:
        """Return the longest time for which one of the programs has waited since the last sample, s."""
        longest = 0.0
        for pid, before in self._delays.items():
            with suppress(OSError, IndexError):  # it has ended
                delay = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
                longest = max(longest, delay - before)
                self._delays[pid] = delay
        return longest
