"""Log lines about events that come by the thousand, or that unauthenticated peers can cause."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger, LogLevel

from tower.reactor.timers import Clock

#: How long a line may wait for others, s.
DELAY = 0.25

#: How many may wait.
MANY = 256

#: How often lines of a `Summary` are summed up, s, and how many of a kind are written in full before that.
PERIOD = 1.0
FEW = 8


class LogBatch:
    """Writes lines in rows.

    A line costs four times as much alone, in between other work, as it does in a row of lines: then all that
    it takes is in the processor's caches.  When every agent comes back at once, that is a tenth of the work.

    :param clock: for the delay.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._lines: list[tuple[str, dict[str, Any]]] = []
        self._timer: Any = None

    def info(self, line: str, **fields: Any) -> None:
        """Write *line*, formatted with *fields* as ``Logger.info`` does, within `DELAY` seconds."""
        self._lines.append((line, fields))
        if len(self._lines) >= MANY:
            self.write()
        elif self._timer is None:
            self._timer = self._clock.callLater(DELAY, self._due)

    def _due(self) -> None:
        self._timer = None
        self.write()

    def write(self) -> None:
        """Write what waits, now."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        lines, self._lines = self._lines, []
        for line, fields in lines:
            self._log.info(line, **fields)


class Summary:
    """Writes lines that anybody can cause in any number: `FEW` of each kind in `PERIOD` seconds.

    These are written as they are.  What follows within the same period is counted, and summed up at its end
    in one line, with the last of them in full.

    :param clock: for the periods.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._kinds: dict[str, _LineKind] = {}

    def log(self, what: str, line: str, *, level: Any = LogLevel.info, **fields: Any) -> None:
        """Write *line*, formatted with *fields* as ``Logger.info`` does, or count it.

        :param what: what happened, in the plural, as in "requests were rejected with 401": the kind.  There
            have to be few.
        """
        kind = self._kinds.get(what)
        if kind is None:
            kind = self._kinds[what] = _LineKind()
            kind.timer = self._clock.callLater(PERIOD, self._due, what)
        kind.count += 1
        if kind.count <= FEW:
            self._log.emit(level, line, **fields)
        else:
            kind.last = level, line, fields

    def _due(self, what: str) -> None:
        kind = self._kinds[what]
        if kind.count:
            self._sum_up(what, kind)
            kind.count = 0
            kind.timer = self._clock.callLater(PERIOD, self._due, what)
        else:
            del self._kinds[what]

    def _sum_up(self, what: str, kind: _LineKind) -> None:
        if kind.count > FEW:
            level, line, fields = kind.last
            text = f"{{count}} more {{what}} in the last {PERIOD:g} s, the last of them: {line}"
            self._log.emit(level, text, count=kind.count - FEW, what=what, **fields)

    def write(self) -> None:
        """Write what was counted, now, and wait for no more."""
        for what, kind in self._kinds.items():
            kind.timer.cancel()
            self._sum_up(what, kind)
        self._kinds.clear()


class _LineKind:
    """What happened of one kind in this period."""

    __slots__ = ("count", "last", "timer")

    def __init__(self) -> None:
        self.count = 0
        self.last: tuple[Any, str, dict[str, Any]] = (LogLevel.info, "", {})
        self.timer: Any = None
