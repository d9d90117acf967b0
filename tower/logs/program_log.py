"""The log of a program: levels, form and destination, and how a reload changes them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from twisted.logger import FilteringLogObserver, ILogObserver, LogEvent, LogLevel
from twisted.python.logfile import LogFile
from zope.interface import implementer

from tower.logs.formats import FORMATS, LineFormat, LineObserver
from tower.logs.levels import LevelFilter, Levels
from tower.logs.standard_output import LOCK, standard_output
from tower.logs.writer import LogWriter

#: Time after which lines that wait are a problem, s.
BLOCKED = 120.0

#: How long the end of a program waits for the last lines, s.
FLUSH_TIMEOUT = 2.0


@implementer(ILogObserver)
class ProgramLog:
    """Observer of all events of a program.

    :param path: of the log file; None: *output*, or else standard error.
    :param form: a key of `FORMATS`.
    :param levels_file: overrides *levels*; read again by `reload`.
    :param output: twistd's own log file, or the descriptor of standard output; used if there is no *path*.
    :raise OSError: the log file cannot be opened.
    :raise ValueError: *levels_file* cannot be used.
    """

    def __init__(
        self,
        path: Path | None,
        form: str,
        levels: Levels,
        levels_file: Path | None = None,
        output: LogFile | int | None = None,
    ) -> None:
        self._form = FORMATS[form]
        self._levels, self._levels_file = levels, levels_file
        self._filter = LevelFilter(self._current_levels())
        self._writer: LogWriter | None = None
        self._file = output if path is None and isinstance(output, LogFile) else None
        if path is None and isinstance(output, int):
            self._writer = LogWriter(None, self._entry, descriptor=output, lock=LOCK)
        elif self._file is None:
            self._writer = LogWriter(path, self._entry)
        lines = LineObserver(self._write if self._writer is None else self._writer.write, self._form)
        self._observer = FilteringLogObserver(lines, [self._filter])

    def __call__(self, event: LogEvent) -> None:
        """See ``ILogObserver``."""
        self._observer(event)

    def reload(self) -> None:
        """Open the log file again, and read the file of levels again.

        :raise ValueError: the file of levels cannot be used; the levels stay.
        """
        if self._writer is not None:
            self._writer.reopen()
        elif self._file is not None:
            self._file.reopen()
        self._filter.set(self._current_levels())

    def flush(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Wait until all lines are written, at most *timeout* s."""
        if self._writer is not None:
            self._writer.flush(timeout)

    @property
    def is_blocked(self) -> bool:
        """Whether no line could be written for `BLOCKED` s."""
        return self._writer is not None and self._writer.blocked > BLOCKED

    def _current_levels(self) -> Levels:
        return self._levels if self._levels_file is None else self._levels.overridden_by(self._levels_file)

    def _write(self, text: str) -> None:
        assert self._file is not None
        try:
            self._file.write(text)
            self._file.flush()
        except (OSError, ValueError):
            pass  # a full disk, or a closed file: the program is more important than its log

    def _entry(self, text: str) -> str:
        return own_entry(self._form, text, time.time())


def own_entry(form: LineFormat, text: str, now: float) -> str:
    """Return a warning of the log about itself.

    :param now: time of day, s since the epoch.
    """
    namespace = "tower.logs.writer.LogWriter"
    event: LogEvent = {"log_time": now, "log_level": LogLevel.warn, "log_namespace": namespace}
    return f"{form(event, [text])}\n"


def twistd_output(logfile: str | None, *, nodaemon: bool) -> LogFile | int:
    """Return the log file, or the descriptor of standard output, that twistd's options select.

    :param logfile: of ``--logfile``.
    :param nodaemon: whether ``--nodaemon`` is given.
    """
    if logfile == "-" or (nodaemon and not logfile):
        return standard_output()
    return cast(LogFile, LogFile.fromFullPath(logfile or "twistd.log"))
