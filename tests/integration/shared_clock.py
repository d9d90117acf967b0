"""One time of day for a proxy, other running programs, and the commands that they and a test start."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

from tests.integration.harness import Tower
from tests.integration.process_clock import ProcessClock
from tests.integration.programs import wait_for
from tests.integration.token_users import anybody

_CLOCKWORK = Path(__file__).parent / "clockwork"


def set_clock(tower: Tower, seconds: int) -> None:
    """Set the proxy's clock ahead, and wait until its answers show that."""
    ProcessClock(tower.proxy.pid).set(seconds)
    client = anybody(tower)

    def is_ahead() -> bool:
        fields = {name.lower(): value for name, value in client.get("/version").headers.items()}
        return parsedate_to_datetime(fields["date"]).timestamp() - time.time() > seconds - 10

    wait_for("the date", is_ahead)


class SharedClock:
    """The clock.

    :ivar environment: variables of commands in Python, such as ``tower`` as a plugin of kubectl.
    :ivar seconds: by which it is ahead.
    """

    def __init__(self, folder: Path) -> None:
        self._step = folder / "step"
        self.seconds = 0
        self._write()
        path = os.pathsep.join([str(_CLOCKWORK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.environment: Mapping[str, str] = {"PYTHONPATH": path, "CLOCK_STEP": str(self._step)}

    @property
    def now(self) -> float:
        """The time, s since the epoch."""
        return time.time() + self.seconds

    def advance(self, seconds: int, tower: Tower, pids: Iterable[int] = ()) -> None:
        """Set the clock ahead: that of the proxy, of commands, and last that of programs that run them."""
        self.seconds += seconds
        set_clock(tower, self.seconds)
        self._write()
        for pid in pids:
            ProcessClock(pid).set(self.seconds)

    def _write(self) -> None:
        draft = self._step.with_suffix(".new")
        draft.write_text(str(self.seconds))
        draft.replace(self._step)
