"""Log lines about events that occur by the thousand, or that unauthenticated peers can cause."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger, LogLevel

from tower.reactor.timers import Clock, DelayedCall

#: Longest delay of a line in a batch, s, and size of a full batch, lines.
DELAY = 0.25
MANY = 256

#: Interval of summaries, s, and lines of a kind that are written in full before one.
PERIOD = 1.0
FEW = 8


class LogBatch:
    """Log with batched lines.

    A line that is written alone, between other work, costs four times as much as one in a batch, whose code
    is in the processor's caches.  When all agents reconnect at once, that is a tenth of the work.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._lines: list[tuple[str, dict[str, Any]]] = []
        self._timer: DelayedCall | None = None

    def info(self, line: str, **fields: Any) -> None:
        """Log *line* with *fields*, as ``Logger.info`` does, within `DELAY` seconds."""
        self._lines.append((line, fields))
        if len(self._lines) >= MANY:
            self.write()
        elif self._timer is None:
            self._timer = self._clock.callLater(DELAY, self._due)

    def _due(self) -> None:
        self._timer = None
        self.write()

    def write(self) -> None:
        """Write the batch now."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        lines, self._lines = self._lines, []
        for line, fields in lines:
            self._log.info(line, **fields)


class Summary:
    """Log with rate limits, for lines that unauthenticated peers can cause.

    `FEW` lines of each kind are written in full per `PERIOD`.  Further ones are counted; one line at the end
    of the period has their number and the last of them.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._kinds: dict[str, _LineKind] = {}

    def log(self, what: str, line: str, *, level: Any = LogLevel.info, **fields: Any) -> None:
        """Log *line* with *fields*, as ``Logger.info`` does, or count it.

        :param what: the kind: the event in the plural, such as "requests were rejected with 401".  There must
            be few kinds.
        """
        kind = self._kinds.get(what)
        if kind is None:
            kind = self._kinds[what] = _LineKind(self._clock.callLater(PERIOD, self._due, what))
        kind.count += 1
        if kind.count <= FEW:
            self._log.emit(level, line, **fields)
        else:
            kind.last = level, line, fields

    def _due(self, what: str) -> None:
        kind = self._kinds[what]
        if kind.count:
            self._summarize(what, kind)
            kind.count = 0
            kind.timer = self._clock.callLater(PERIOD, self._due, what)
        else:
            del self._kinds[what]

    def _summarize(self, what: str, kind: _LineKind) -> None:
        if kind.count > FEW:
            level, line, fields = kind.last
            text = f"{{count}} more {{what}} in the last {PERIOD:g} s, the last of them: {line}"
            self._log.emit(level, text, count=kind.count - FEW, what=what, **fields)

    def write(self) -> None:
        """Write the summaries now, and start new periods."""
        for what, kind in self._kinds.items():
            kind.timer.cancel()
            self._summarize(what, kind)
        self._kinds.clear()


class _LineKind:
    """Lines of one kind in this period."""

    __slots__ = ("count", "last", "timer")

    def __init__(self, timer: DelayedCall) -> None:
        self.timer = timer
        self.count = 0
        self.last: tuple[Any, str, dict[str, Any]] = (LogLevel.info, "", {})
