"""The time that programs need, without the time in which a busy machine let them wait for a processor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tests.integration.programs import PATIENCE, Program, wait_for


class OwnTime:
    """Begins when it is created.  On a machine without other load, it is the time that passes.

    :param programs: that work in turns; they run.  This process is one of them, as it sees the result.
    :param servers: process ids of others that do some of the work, such as an API server.
    """

    def __init__(self, *programs: Program, servers: Iterable[int] = ()) -> None:
        self._pids = (*(each.pid for each in programs), *servers, os.getpid())
        self._delays: dict[str, float] = {}  # by thread
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

        def is_ready() -> object:
            self.passed()
            return ready()

        wait_for(what, is_ready, timeout, every)
        return self.passed()

    def _sample(self) -> float:
        """Return the longest time for which one of the threads has waited since the last sample, s."""
        longest = 0.0
        for pid in self._pids:
            with suppress(OSError):  # it has ended
                for thread in os.listdir(f"/proc/{pid}/task"):
                    longest = max(longest, self._waited_since(pid, thread))
        return longest

    def _waited_since(self, pid: int, thread: str) -> float:
        """Return the time for which a thread has waited since the last sample, s."""
        try:
            delay = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended
            return 0.0
        before = self._delays.get(thread, delay)
        self._delays[thread] = delay
        return delay - before
