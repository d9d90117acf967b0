"""How much is logged: ``--v`` as klog knows it, for Twisted's log."""

from __future__ import annotations

import re
import sys
from typing import TextIO, cast

from twisted.logger import (
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    textFileLogObserver,
)
from twisted.python.logfile import LogFile

#: From this ``--v`` on Tower's own debugging is logged, and from the other one that of the libraries too.
DEBUG = 4
DEBUG_ALL = 8

#: What klog's ``--vmodule`` looks like.
_MODULE = re.compile(r"[A-Za-z0-9_.]+=-?[0-9]+")


def read_verbosity(text: str) -> int:
    """Return the value of ``--v``; see `tower.quantities` for what readers do."""
    if not re.fullmatch(r"-?[0-9]{1,4}", text, re.ASCII):
        raise ValueError("is no log level: give a number, 0 for normal and 4 or more for debugging")
    return int(text)


def read_modules(text: str) -> dict[str, int]:
    """Return the value of ``--vmodule``: levels for modules of Tower, such as ``conch.mux=4,tunnels=4``."""
    parts = [part for part in text.split(",") if part]
    if not all(_MODULE.fullmatch(part) for part in parts):
        raise ValueError("is no list of log levels: give MODULE=N, such as conch.mux=4,tunnels=4")
    return {name: int(level) for name, _, level in (part.partition("=") for part in parts)}


def predicate(verbosity: int, modules: dict[str, int]) -> ILogFilterPredicate:
    """Return what lets through the events that these levels ask for."""
    chosen = LogLevelFilterPredicate(LogLevel.debug if verbosity >= DEBUG_ALL else LogLevel.info)
    chosen.setLogLevelForNamespace("tower", LogLevel.debug if verbosity >= DEBUG else LogLevel.info)
    for name, level in modules.items():
        chosen.setLogLevelForNamespace(
            f"tower.{name.removeprefix('tower.')}", LogLevel.debug if level >= DEBUG else LogLevel.info
        )
    return chosen


def observer(out: TextIO, verbosity: int, modules: dict[str, int]) -> ILogObserver:
    """Return an observer that writes to *out* what these levels ask for."""
    return FilteringLogObserver(textFileLogObserver(out), [predicate(verbosity, modules)])


def log_output(logfile: str | None, nodaemon: bool) -> TextIO:
    """Return where twistd's ``--logfile`` and ``--nodaemon`` say that the log goes."""
    if logfile == "-" or (nodaemon and not logfile):
        return sys.stdout
    return cast(TextIO, LogFile.fromFullPath(logfile or "twistd.log"))
