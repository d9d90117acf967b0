"""The form of log lines: text or JSON; one event is one entry in both.

A text line has the time, the level, the subject and the message; a traceback follows in indented lines.  A
JSON line has the same in keys, and the event's fields; see docs/logging.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.logger import (
    ILogObserver,
    LegacyLogObserverWrapper,
    LogEvent,
    LogLevel,
    eventAsText,
    formatEvent,
)
from zope.interface import implementer

from tower.escaping import escaped

#: Formats an event, with its message in lines, as a whole entry without its last line end.
LineFormat = Callable[[LogEvent, list[str]], str]

#: Longest value of a field in JSON, characters.
FIELD_LIMIT = 1024

#: Keys of every JSON line; a field of an event that has such a name gets an underscore.
KEYS = frozenset({"time", "level", "logger", "message", "error"})

#: Fields of events of Twisted's old logging.
_LEGACY = frozenset({"time", "message", "system", "format", "isError", "failure", "why", "text"})

#: Keys that an event for syslog keeps, in addition to its text.
_PASSED_ON = ("log_time", "log_level", "log_namespace", "syslogPriority", "syslogFacility")


def text_line(event: LogEvent, lines: list[str]) -> str:
    """Return ``2026-11-22T03:29:00.125Z info gateway: message``, and indented lines of a traceback."""
    subject = subject_of(event)
    head = f"{_time(event)} {_level(event)} {subject}: {escaped(lines[0])}"
    return "\n".join([head, *(f"\t{escaped(line)}" for line in lines[1:])])


def json_line(event: LogEvent, lines: list[str]) -> str:
    """Return an object with `KEYS` (``error`` with a traceback only) and the event's fields."""
    entry: dict[str, Any] = {
        "time": _time(event),
        "level": _level(event),
        "logger": logger_of(event),
        "message": lines[0],
    }
    if len(lines) > 1:
        entry["error"] = "\n".join(lines[1:])
    other = _LEGACY if "isError" in event else frozenset()
    for name, value in event.items():
        if not (name.startswith(("log_", "_")) or name in other):
            entry[f"{name}_" if name in KEYS else name] = _plain(value)
    return json.dumps(entry, ensure_ascii=True)


#: Values of ``--log-format``.
FORMATS: dict[str, LineFormat] = {"text": text_line, "json": json_line}


def read_format(text: str) -> str:
    """Read ``--log-format``."""
    if text not in FORMATS:
        raise ValueError(f"is not a log format: give {' or '.join(FORMATS)}")
    return text


@implementer(ILogObserver)
class LineObserver:
    """Writes each event as one entry; events without text are dropped.

    :param write: called with the entry and its line end.
    """

    def __init__(self, write: Callable[[str], object], form: LineFormat) -> None:
        self._write = write
        self._form = form

    def __call__(self, event: LogEvent) -> None:
        """See ``ILogObserver``."""
        lines = event_lines(event)
        if any(lines):
            self._write(f"{self._form(event, lines)}\n")


def event_lines(event: LogEvent) -> list[str]:
    """Return the message of *event*, in one line, and the lines of its traceback."""
    text = formatEvent(event)
    # an event of twisted.python.log has its traceback in its text
    lines = text.strip("\n").split("\n") if event.get("failure") is not None else [text]
    if "log_failure" in event:
        failure = {"log_failure": event["log_failure"]}
        traceback = eventAsText(failure, includeTimestamp=False, includeSystem=False)
        lines += traceback.strip("\n").split("\n")
    return lines


def logger_of(event: LogEvent) -> str:
    """Return the module that logged *event*, as ``--vmodule`` takes it; libraries with their full name."""
    parts = str(event.get("log_namespace") or "-").split(".")
    if parts[0] != "tower" or len(parts) == 1:
        return escaped(str(event["log_system"])) if "log_system" in event else ".".join(parts)
    if len(parts) > 2 and parts[-1][:1].isupper():
        parts.pop()  # the class
    return ".".join(parts[1:])


def subject_of(event: LogEvent) -> str:
    """Return the subject of a text line: the folder of Tower's module, or the library."""
    name = logger_of(event)
    if not str(event.get("log_namespace") or "").startswith("tower."):
        return name.partition(".")[0]
    folders = name.split(".")[:-1]
    return folders[-1] if folders else name


def _time(event: LogEvent) -> str:
    moment = datetime.fromtimestamp(event.get("log_time") or 0.0, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _level(event: LogEvent) -> str:
    return str((event.get("log_level") or LogLevel.info).name)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= FIELD_LIMIT else text[: FIELD_LIMIT - 1] + "…"


def syslog_observer(prefix: str) -> ILogObserver:
    """Return an observer that writes to syslog like twistd's ``--syslog``, one line per event."""
    from twisted.python.syslog import SyslogObserver  # there is no syslog on some platforms

    emit: Any = SyslogObserver(prefix).emit
    return _ForSyslog(LegacyLogObserverWrapper(emit))


@implementer(ILogObserver)
class _ForSyslog:
    """Forwards events as text with escaped line ends, except between the lines of a traceback."""

    def __init__(self, observer: ILogObserver) -> None:
        self._observer = observer

    def __call__(self, event: LogEvent) -> None:
        lines = event_lines(event)
        if not any(lines):
            return
        plain = {key: event[key] for key in _PASSED_ON if key in event}
        plain["log_format"], plain["log_text"] = "{log_text}", "\n".join(map(escaped, lines))
        if "log_system" in event:
            plain["log_system"] = escaped(str(event["log_system"]))
        self._observer(plain)
