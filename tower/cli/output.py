"""Output formats of commands: tables, YAML and JSON; the question before a command that cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from tower.cli.client import CommandFailed
from tower.escaping import escaped, readable_json


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table like kubectl's: *header* in capitals, three blanks between columns."""
    lines = [[title.upper() for title in header]]
    lines += [[_cell(value) for value in row] for row in rows]
    return _aligned(lines, [max(map(len, column)) for column in zip(*lines, strict=True)])


def _aligned(lines: Iterable[Sequence[str]], widths: Sequence[int]) -> str:
    return "\n".join(
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def table(answer: dict[str, Any], *, wide: bool = False, empty: str = "No resources found") -> str:
    """Return the text of a meta.k8s.io `Table`.

    :param wide: include the columns of lower priority.
    :param empty: text for a table without rows.
    """
    return columns(*_shown(answer, wide=wide)) if answer.get("rows") else empty


class GrowingTable:
    """A table whose rows arrive over time; the columns keep at least the widths of earlier rows.

    :param wide: include the columns of lower priority.
    """

    def __init__(self, *, wide: bool = False) -> None:
        self._wide = wide
        self._widths: list[int] = []

    def add(self, answer: dict[str, Any]) -> str:
        """Return the text of the rows in *answer*, with the header before the first row."""
        if not answer.get("rows"):
            return ""
        header, rows = _shown(answer, wide=self._wide)
        lines = [[_cell(value) for value in row] for row in rows]
        if len(self._widths) != len(header):
            lines.insert(0, [title.upper() for title in header])
            self._widths = [0] * len(header)
        self._widths = [
            max(width, *map(len, column))
            for width, column in zip(self._widths, zip(*lines, strict=True), strict=True)
        ]
        return _aligned(lines, self._widths)


def _shown(answer: dict[str, Any], *, wide: bool) -> tuple[list[str], list[list[object]]]:
    """Return the titles and rows of the shown columns."""
    shown = [
        (index, definition["name"])
        for index, definition in enumerate(answer["columnDefinitions"])
        if wide or not definition.get("priority")
    ]
    return [name for _, name in shown], [
        [row["cells"][index] for index, _ in shown] for row in answer["rows"]
    ]


def names(answer: dict[str, Any]) -> str:
    """Return the names of the objects in a list, or of one object; one per line."""
    items = answer.get("items", [answer])
    return "\n".join(item["metadata"]["name"] for item in items)


def pairs(values: Iterable[tuple[str, object]]) -> str:
    """Return one `Name:  value` line for each pair, with the values aligned."""
    listed = [(f"{name}:", _cell(value)) for name, value in values]
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name.ljust(width)}  {value}".rstrip() for name, value in listed)


def structured(value: dict[str, Any], form: str) -> str:
    """Return *value* in the format *form*: ``json``, ``yaml`` or ``name``."""
    if form == "name":
        return names(value)
    return as_json(value) if form == "json" else as_yaml(value)


def as_yaml(value: dict[str, Any]) -> str:
    """Return *value* as YAML, in its own order."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():  # PyYAML considers some of those printable
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def as_json(value: dict[str, Any]) -> str:
    """Return *value* as indented JSON."""
    return readable_json(value)


def note(text: str) -> None:
    """Print a line that is not part of the result."""
    print(f"tower: note: {escaped(text)}", file=sys.stderr)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "<none>"
    if isinstance(value, bool):
        return str(value).lower()
    return escaped(str(value))


def is_asked(*, yes: bool) -> bool:
    """Return whether to ask: on a terminal, without --yes."""
    return not yes and sys.stdin.isatty()


def confirm(consequence: str, refused: str) -> None:
    """Show *consequence* and ask whether to continue.

    :param refused: begin of the error after any other answer than yes.
    :raise CommandFailed: the answer is not yes.
    """
    print(f"{consequence}  Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed(f"{refused}: answer y, or add --yes")
