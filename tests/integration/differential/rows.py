"""Rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from attrs import field, frozen

T_co = TypeVar("T_co", covariant=True)

#: The answer to options that are accepted.
STARTS = "starts"

#: The answer of a server that ends the TLS handshake with an alert.
NO_TLS = "no TLS connection"


@frozen
class Difference:
    """Different answers, on purpose.

    :ivar theirs: kube-apiserver's answer, or a part of it.
    :ivar ours: Tower's.
    """

    theirs: str
    ours: str
    why: str


@frozen
class Row(Generic[T_co]):
    """One case; *other* is None if the answers are equal."""

    name: str
    case: T_co
    other: Difference | None = None


@frozen
class Table(Generic[T_co]):
    """Cases of one kind.

    :ivar title: of the section on the page.
    """

    title: str
    rows: Sequence[Row[T_co]]

    @property
    def equal(self) -> int:
        """Number of cases with equal answers."""
        return sum(row.other is None for row in self.rows)


@frozen
class Start:
    """A start with options, in which ``{d}`` is a folder with *files*, and ``{f}`` one with good ones."""

    options: Sequence[str]
    files: Mapping[str, str] = field(factory=dict)


def start(*options: str, note: str = "", other: Difference | None = None, **files: str) -> Row[Start]:
    """Return a row that has its options, and a note on the files, as its name."""
    shown = " ".join(options).replace("{d}/", "").replace("{f}/", "").replace("{f}", "DIRECTORY")
    return Row(f"`{shown}`{note and ': '}{note}", Start(options, files), other)
