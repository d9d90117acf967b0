"""Log levels: klog's ``--v`` and ``--vmodule`` for Twisted's log."""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO, cast

from twisted.logger import (
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LegacyLogObserverWrapper,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    eventAsText,
    formatEvent,
    textFileLogObserver,
)
from twisted.python.logfile import LogFile
from zope.interface import implementer

from tower.escaping import escaped

#: ``--v`` from which Tower logs debugging, and from which its libraries do too.
DEBUG = 4
DEBUG_ALL = 8

#: An entry of klog's ``--vmodule``.
_MODULE = re.compile(r"[A-Za-z0-9_.]+=-?[0-9]+")


def read_verbosity(text: str) -> int:
    """Read ``--v``; see `tower.options.values`."""
    if not re.fullmatch(r"-?[0-9]{1,4}", text, re.ASCII):
        raise ValueError("is not a log level: give a number, 0 for normal and 4 or more for debugging")
    return int(text)


def read_modules(text: str) -> dict[str, int]:
    """Read ``--vmodule``: log levels of Tower's modules, such as ``conch.mux=4,tunnels=4``."""
    parts = [part for part in text.split(",") if part]
    if not all(_MODULE.fullmatch(part) for part in parts):
        raise ValueError("is not a list of log levels: give MODULE=N, such as conch.mux=4,tunnels=4")
    return {name: int(level) for name, _, level in (part.partition("=") for part in parts)}


def predicate(verbosity: int, modules: dict[str, int]) -> ILogFilterPredicate:
    """Return a filter for these levels."""
    chosen = LogLevelFilterPredicate(LogLevel.debug if verbosity >= DEBUG_ALL else LogLevel.info)
    chosen.setLogLevelForNamespace("tower", LogLevel.debug if verbosity >= DEBUG else LogLevel.info)
    for name, level in modules.items():
        chosen.setLogLevelForNamespace(
            f"tower.{name.removeprefix('tower.')}", LogLevel.debug if level >= DEBUG else LogLevel.info
        )
    return chosen


def observer(out: TextIO, verbosity: int, modules: dict[str, int]) -> ILogObserver:
    """Return an observer that writes the events of these levels to *out*, one line each; see `escaped`."""
    return FilteringLogObserver(_Escaping(textFileLogObserver(out)), [predicate(verbosity, modules)])


def syslog_observer(prefix: str) -> ILogObserver:
    """Return an observer that writes to syslog like twistd's ``--syslog``, one line per event."""
    from twisted.python.syslog import SyslogObserver  # there is no syslog on some platforms

    emit: Any = SyslogObserver(prefix).emit
    return _Escaping(LegacyLogObserverWrapper(emit))


@implementer(ILogObserver)
class _Escaping:
    """Forwards events as text with escaped line ends, except between the lines of a traceback."""

    def __init__(self, observer: ILogObserver) -> None:
        self._observer = observer

    def __call__(self, event: LogEvent) -> None:
        text = formatEvent(event)
        # an event of twisted.python.log has its traceback in its text
        lines = text.strip("\n").split("\n") if event.get("failure") is not None else [text]
        if "log_failure" in event:
            failure = {"log_failure": event["log_failure"]}
            traceback = eventAsText(failure, includeTimestamp=False, includeSystem=False)
            lines += traceback.strip("\n").split("\n")
        if not any(lines):
            return
        plain = {key: event[key] for key in _PASSED_ON if key in event}
        plain["log_format"], plain["log_text"] = "{log_text}", "\n".join(map(escaped, lines))
        if "log_system" in event:
            plain["log_system"] = escaped(str(event["log_system"]))
        self._observer(plain)


#: Keys that an event keeps, in addition to its text.
_PASSED_ON = ("log_time", "log_level", "log_namespace", "syslogPriority", "syslogFacility")


def log_output(logfile: str | None, nodaemon: bool) -> TextIO:
    """Return the log file that twistd's ``--logfile`` and ``--nodaemon`` select."""
    if logfile == "-" or (nodaemon and not logfile):
        return sys.stdout
    return cast(TextIO, LogFile.fromFullPath(logfile or "twistd.log"))
