"""Entries of ``optParameters`` and ``optFlags``: names, defaults, help texts and readers of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from tower.options.errors import OptionError
from tower.options.values import read_secret_file

Parameter: TypeAlias = tuple[str, str | None, str | None, str, Callable[[str], object]]


@frozen
class ValueReader:
    """Returns the value of an option, or the error, which `EnvironmentOptions.postOptions` raises.

    :ivar adds_up: whether a repeated option has the values of all repeats, as comma-separated text.
    """

    name: str
    _read: Callable[[str], object]
    adds_up: bool = False

    def __call__(self, text: str) -> object:
        """Return the value of *text*."""
        try:
            return self._read(text)
        except ValueError as e:
            return OptionError(self.name, text, str(e))


def parameter(
    name: str, default: str | None, doc: str, read: Callable[[str], object] = str, short: str | None = None
) -> Parameter:
    """Return an entry for ``optParameters``.

    :param default: read as if the user had typed it, and shown so by ``--help``; None: no default.
    :param read: parses the text; raises `ValueError` with the problem and the cure.
    """
    return (name, short, default, doc, ValueReader(name, read))


def list_parameter(name: str, default: str | None, doc: str, read: Callable[[str], object]) -> Parameter:
    """Return an entry for an option whose repeats add up; empty ones add nothing.

    :param read: parses the comma-separated text of all repeats.
    """
    return (name, None, default, doc, ValueReader(name, read, adds_up=True))


def flag(name: str, doc: str) -> tuple[str, None, str]:
    """Return an entry for ``optFlags``."""
    return (name, None, doc)


def secret(name: str, doc: str) -> list[Parameter]:
    """Return two entries for ``optParameters``, the value and the file that holds it.

    See `EnvironmentOptions.secret`.
    """
    file_doc = f"File with the value of --{name}; -: standard input."
    return [parameter(name, None, doc), parameter(f"{name}-file", None, file_doc, read_secret_file)]


#: Option of both programs; see `tower.reactor.process.forbid_dumps`.
ALLOW_DUMPS = flag(
    "allow-core-dumps",
    "Allow core dumps, and let other programs of this user read the memory, keys included.",
)
