"""Log levels: klog's ``--v`` and ``--vmodule``, and the file of ``--log-levels``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from attrs import field, frozen
from twisted.logger import ILogFilterPredicate, LogEvent, LogLevel, LogLevelFilterPredicate
from zope.interface import implementer

from tower.files import read_plain

#: ``--v`` from which Tower logs debugging, and from which its libraries do too.
DEBUG = 4
DEBUG_ALL = 8

#: Largest file of ``--log-levels``, B.
FILE_LIMIT = 4096

#: An entry of klog's ``--vmodule``.
_MODULE = re.compile(r"[A-Za-z0-9_.]+=-?[0-9]+")


def read_verbosity(text: str) -> int:
    """Read ``--v``; see `tower.options.values`."""
    if not re.fullmatch(r"-?[0-9]{1,4}", text, re.ASCII):
        raise ValueError("is not a log level: give a number, 0 for normal and 4 or more for debugging")
    return int(text)


def read_modules(text: str) -> dict[str, int]:
    """Read ``--vmodule``: log levels of Tower's rooms or modules, such as ``conch=4,web.gateway=4``."""
    parts = [part for part in text.split(",") if part]
    if not all(_MODULE.fullmatch(part) for part in parts):
        raise ValueError("is not a list of log levels: give MODULE=N, such as conch=4,web.gateway=4")
    return {name: int(level) for name, _, level in (part.partition("=") for part in parts)}


@frozen
class Levels:
    """Log levels: of everything, and of single modules."""

    verbosity: int = 0
    modules: dict[str, int] = field(factory=dict)

    def overridden_by(self, path: Path) -> Levels:
        """Return the levels of the file at *path*, a line ``v=N`` or ``vmodule=…`` each, else these.

        A missing file overrides nothing, so it can be created when it is needed.

        :raise ValueError: the file cannot be read, or has another line; the text begins with a verb.
        """
        try:
            text = read_plain(path, FILE_LIMIT).decode()
        except FileNotFoundError:
            return self
        except (OSError, UnicodeDecodeError) as e:
            raise ValueError(f"cannot be read ({getattr(e, 'strerror', None) or 'not text'})") from e
        verbosity, modules = self.verbosity, self.modules
        for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
            name, _, value = (part.strip() for part in line.removeprefix("--").partition("="))
            try:
                if name == "v":
                    verbosity = read_verbosity(value)
                elif name == "vmodule":
                    modules = read_modules(value)
                else:
                    raise ValueError("is not a log level: give v=N or vmodule=MODULE=N")
            except ValueError as e:
                raise ValueError(f"has the line {line!r}, which {e}") from None
        return Levels(verbosity, modules)


@implementer(ILogFilterPredicate)
class LevelFilter:
    """Passes the events of the current levels.

    Tower's libraries log warnings only, information from `DEBUG` on, and debugging from `DEBUG_ALL` on.
    """

    def __init__(self, levels: Levels) -> None:
        self.set(levels)

    def set(self, levels: Levels) -> None:
        """Use *levels* from now on."""
        verbosity = levels.verbosity
        libraries = LogLevel.info if verbosity >= DEBUG else LogLevel.warn
        chosen = LogLevelFilterPredicate(LogLevel.debug if verbosity >= DEBUG_ALL else libraries)
        chosen.setLogLevelForNamespace("tower", LogLevel.debug if verbosity >= DEBUG else LogLevel.info)
        for name, level in levels.modules.items():
            chosen.setLogLevelForNamespace(
                f"tower.{name.removeprefix('tower.')}", LogLevel.debug if level >= DEBUG else LogLevel.info
            )
        self._chosen = chosen

    def __call__(self, event: LogEvent) -> Any:
        """See ``ILogFilterPredicate``."""
        return self._chosen(event)
